"""Icons with a name and a known meaning: the icon fonts in `qtawesome`, and the simulated phone's own glyphs.

Qt is not used: Pillow reads the files of the wheel, a TrueType font and a JSON of names for each set. The table from
names to meanings is icon_names.yaml.
"""

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from PIL import Image, ImageDraw, ImageFont

from vlm_agent.errors import DatasetError
from vlm_agent.simulator.drawing.icons import STROKES, glyph_mask

SETS = {
    "materialdesignicons6": "Material Design Icons 6.9 (Apache-2.0)",
    "remixicon": "Remix Icon 2.5 (Apache-2.0)",
    "fontawesome6-solid": "Font Awesome Free 6.7 solid, the font (OFL-1.1)",
    "fontawesome6-regular": "Font Awesome Free 6.7 regular, the font (OFL-1.1)",
    "fontawesome5-solid": "Font Awesome Free 5.15 solid, the font (OFL-1.1)",
    "fontawesome5-regular": "Font Awesome Free 5.15 regular, the font (OFL-1.1)",
    "elusiveicons": "Elusive Icons 2.0 (OFL-1.1)",
}
"""Sets to train on: prefix of the files → name and licence. Codicons (CC-BY-4.0) and brands are left out."""

HELD_OUT = "phosphor"
"""Phosphor 1.3 (MIT): measures accuracy, and is never trained on."""

SIMULATED = "simulated_phone"

STYLES = frozenset({"fill", "line", "outline", "outlined", "bold", "thin", "light", "duotone", "regular"})
SHAPES = frozenset({"circle", "box", "square", "simple", "rounded", "straight", "variant", "alt", "sign", "wavy", "o"})

MASK_SIDE = 64


@dataclass(frozen=True)
class Icon:
    """One drawn icon. `mask`: uint8 (height, width), its ink, cropped, the longer side `MASK_SIDE` pixels."""

    of_set: str
    name: str
    meaning: str
    mask: np.ndarray


@dataclass(frozen=True)
class Names:
    """The table of `icon_names.yaml`, inverted: name of an icon → name of a meaning."""

    of_fonts: dict[str, str]
    of_simulated: dict[str, str]

    @classmethod
    def read(cls) -> "Names":
        table = yaml.safe_load(Path(__file__).with_name("icon_names.yaml").read_text(encoding="utf-8"))
        fonts, simulated = (
            {name: meaning for meaning in part for name in part[meaning].split()} for part in table.values()
        )
        return cls(fonts, simulated)

    def meaning(self, name: str) -> str | None:
        """The meaning of an icon of a font; None for one that is not in the table.

        Words for a style at the end are dropped until the rest is in the table, then words for a shape anywhere:
        `bell-outline` and `bell-circle-outline` are `bell`.
        """
        words = name.split("-")
        while words:
            found = self.of_fonts.get("-".join(words))
            if found is not None:
                return found
            if words[-1] not in STYLES:
                break
            words.pop()
        return self.of_fonts.get("-".join(word for word in words if word not in SHAPES))


def icons_of(sets: list[str], names: Names | None = None) -> list[Icon]:
    """The icons of these sets whose names the table has. Raises DatasetError where `qtawesome` is missing."""
    names = names or Names.read()
    return [icon for one in sets for icon in (_simulated(names) if one == SIMULATED else _of_font(one, names))]


def _of_font(of_set: str, names: Names) -> Iterator[Icon]:
    font_file, names_file = _files(of_set)
    font = ImageFont.truetype(str(font_file), 160)
    for name, code in sorted(json.loads(names_file.read_text(encoding="utf-8")).items()):
        meaning = names.meaning(name)
        if meaning is None:
            continue
        canvas = Image.new("L", (320, 320))
        ImageDraw.Draw(canvas).text((160, 160), chr(int(code, 16)), 255, font, anchor="mm")
        if (box := canvas.getbbox()) is not None:
            yield Icon(of_set, name, meaning, _cropped(canvas, box))


def _simulated(names: Names) -> Iterator[Icon]:
    for name, meaning in sorted(names.of_simulated.items()):
        for strokes in STROKES:
            mask = glyph_mask(name, MASK_SIDE, strokes)
            if (box := mask.getbbox()) is not None:
                yield Icon(SIMULATED, f"{name} {strokes}", meaning, _cropped(mask, box))


def _cropped(canvas: Image.Image, box: tuple[int, int, int, int]) -> np.ndarray:
    inside = canvas.crop(box)
    scale = MASK_SIDE / max(inside.size)
    width, height = (max(1, round(length * scale)) for length in inside.size)
    return np.asarray(inside.resize((width, height), Image.Resampling.BILINEAR))


def _files(of_set: str) -> tuple[Path, Path]:
    """The font and the names of a set."""
    found = importlib.util.find_spec("qtawesome")
    if found is None or found.origin is None:
        raise DatasetError("the icon fonts are missing; install them: pip install qtawesome")
    folder = Path(found.origin).parent / "fonts"
    fonts = sorted(folder.glob(f"{of_set}*.ttf"))
    charmaps = sorted(folder.glob(f"{of_set}*charmap*.json"))
    if len(fonts) != 1 or len(charmaps) != 1:
        raise DatasetError(
            f"{folder} holds {len(fonts)} fonts and {len(charmaps)} lists of names of {of_set}; one each is expected"
        )
    return fonts[0], charmaps[0]
