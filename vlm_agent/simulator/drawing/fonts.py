"""Typefaces of simulated phones, all under free licences and installed by pip.

The name of a typeface is family-weight, such as `Roboto-Medium`. Only pretraining uses families other than Roboto.
"""

from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

from PIL import ImageFont

_FAMILIES = {
    "Roboto": ("font_roboto", "Roboto-{}.ttf", {}),
    "Manrope": ("font_manrope", "Manrope-{}.ttf", {}),
    "Source Sans": ("font_source_sans_pro", "SourceSansPro-{}.ttf", {"Medium": "Semibold"}),
    "Hanken Grotesk": ("font_hanken_grotesk", "HankenGrotesk-{}.otf", {}),
    "Caladea": ("font_caladea", "Caladea-{}.ttf", {"Medium": "Bold"}),
}
"""Family → (package, pattern of its file names, our weight → its weight where they differ)."""

FAMILIES = tuple(_FAMILIES)
WEIGHTS = ("Regular", "Medium", "Bold")


@lru_cache(maxsize=1024)
def font(face: str, pixels: int) -> ImageFont.FreeTypeFont:
    """`face`: the name of a typeface. `pixels`: the font size."""
    return ImageFont.truetype(str(_path(face)), pixels, layout_engine=ImageFont.Layout.BASIC)


@cache
def _path(face: str) -> Path:
    family, _, weight = face.rpartition("-")
    package, pattern, names = _FAMILIES[family]
    return Path(str(files(package) / "files" / pattern.format(names.get(weight, weight))))
