"""Icons, rendered from the strokes in `glyphs` with supersampling and cached by size."""

from functools import cache, lru_cache

import numpy as np
from PIL import Image, ImageChops, ImageDraw

from vlm_agent.simulator.drawing.glyphs import GLYPHS
from vlm_agent.simulator.drawing.theme import Colour

ELEMENT_TYPES = {
    "gear": "SETTINGS", "clock": "TIME", "envelope": "ENVELOPE", "chat": "CHAT", "pin": "LOCATION", "person": "PERSON",
    "photo": "GALLERY", "phone": "CALL", "camera": "TAKE_PHOTO", "cart": "SHOPPING_CART", "search": "MAGNIFYING_GLASS",
    "menu": "THREE_BARS", "dots": "THREE_DOTS", "back": "ARROW_BACKWARD", "forward": "V_FORWARD", "down": "V_DOWNWARD",
    "up": "V_UPWARD", "close": "X", "trash": "DELETE", "pencil": "EDIT", "nav_back": "V_BACKWARD",
    "nav_home": "NAV_BAR_CIRCLE", "nav_recents": "NAV_BAR_RECT", "film": "VIDEOCAM", "bell": "NOTIFICATIONS",
    "assistant": "ASSISTANT", "arrow_up_left": "ARROW_UPWARD", "battery_level": "BATTERY",
}  # fmt: skip
"""Glyph → AITW's icon type, if AITW has one; other types have the name of the glyph."""


def element_type(glyph: str) -> str:
    """The element type of a glyph, such as `ICON_SETTINGS` for `gear`."""
    return f"ICON_{ELEMENT_TYPES.get(glyph, glyph.upper())}"


STROKES = ("solid", "outlined", "thin", "heavy")
"""Stroke styles of glyphs: unchanged, contour only, thinner, thicker."""


@lru_cache(maxsize=4096)
def glyph_mask(name: str, size: int, strokes: str = "solid") -> Image.Image:
    """The glyph's mask, mode L, `size` × `size` pixels."""
    if strokes != "solid":
        return _change_strokes(name, strokes).resize((size, size), Image.Resampling.BOX)
    times = max(2, -(-96 // size))
    return _draw_glyph(name, size * times).reduce(times)


def _draw_glyph(name: str, side: int) -> Image.Image:
    """The glyph in solid strokes, mode L, `side` × `side` pixels."""
    mask = Image.new("L", (side, side))
    pen = ImageDraw.Draw(mask)
    for stroke in GLYPHS[name].split(";"):
        word, *numbers = stroke.split()
        places = [float(number) for number in numbers]
        _draw(pen, word.removeprefix("-"), places, side / 24, 0 if word[0] == "-" else 255)
    return mask


@cache
def _change_strokes(name: str, strokes: str) -> Image.Image:
    """The glyph in a stroke style, 144 × 144 pixels; cached for all sizes."""
    mask = _draw_glyph(name, 144)
    if strokes == "outlined":
        return ImageChops.subtract(mask, _filtered(mask, np.minimum, 15))
    return _filtered(mask, np.minimum, 5) if strokes == "thin" else _filtered(mask, np.maximum, 7)


def _filtered(mask: Image.Image, extreme: np.ufunc, side: int) -> Image.Image:
    """The extreme of the square of `side` pixels around each pixel, one axis at a time: the result of Pillow's
    MinFilter or MaxFilter, ten times as fast."""
    values = np.asarray(mask)
    for _ in range(2):
        padded = np.pad(values, ((side // 2, side // 2), (0, 0)), mode="edge")
        values = extreme.reduce([padded[at : at + len(values)] for at in range(side)]).T
    return Image.fromarray(np.ascontiguousarray(values))


def _draw(pen: ImageDraw.ImageDraw, word: str, numbers: list[float], scale: float, ink: int) -> None:
    n = [number * scale for number in numbers]
    if word == "disc":
        pen.ellipse((n[0] - n[2], n[1] - n[2], n[0] + n[2], n[1] + n[2]), fill=ink)
    elif word == "ring":
        pen.ellipse((n[0] - n[2], n[1] - n[2], n[0] + n[2], n[1] + n[2]), outline=ink, width=round(n[3]))
    elif word == "arc":
        box = (n[0] - n[2] - n[5] / 2, n[1] - n[2] - n[5] / 2, n[0] + n[2] + n[5] / 2, n[1] + n[2] + n[5] / 2)
        pen.arc(box, numbers[3], numbers[4], fill=ink, width=round(n[5]))
    elif word == "poly":
        pen.polygon(n, fill=ink)
    elif word == "rect":
        pen.rounded_rectangle(n[:4], n[4], fill=ink)
    elif word == "line":
        pen.line(n[1:], fill=ink, width=round(n[0]), joint="curve")
        for x, y in zip(n[1::2], n[2::2], strict=True):
            pen.ellipse((x - n[0] / 2, y - n[0] / 2, x + n[0] / 2, y + n[0] / 2), fill=ink)
    else:
        raise ValueError(f"unknown stroke {word!r}")


@lru_cache(maxsize=4096)
def shape_mask(width: int, height: int, radius: int) -> Image.Image:
    """A filled rectangle with rounded corners, mode L; all arguments in pixels."""
    times = 4 if width * height < 200_000 else 2
    mask = Image.new("L", (width * times, height * times))
    box = (0, 0, width * times - 1, height * times - 1)
    ImageDraw.Draw(mask).rounded_rectangle(box, min(radius, width // 2, height // 2) * times, fill=255)
    return mask.reduce(times)


# fmt: off
WHITE_PLATES = frozenset({
    "globe", "envelope", "play", "pin", "photo", "calendar", "newspaper", "music", "letters", "fork", "plane",
    "flower", "leaf", "star", "puzzle", "bed", "scan",
})
# fmt: on
"""Glyphs that app icons show in colour on a white plate; the others are white on a coloured plate."""


@lru_cache(maxsize=1024)
def app_icon(glyph: str, colour: Colour, shape: str, size: int, strokes: str = "solid") -> Image.Image:
    """An app icon, RGBA, `size` × `size` pixels: a glyph on a plate with a vertical gradient.

    `shape`: `circle`, `squircle` or `rounded`.
    """
    radius = {"circle": size // 2, "squircle": round(size * 0.36), "rounded": round(size * 0.2)}[shape]
    top, bottom = tuple(min(255, value + 34) for value in colour), tuple(round(value * 0.9) for value in colour)
    ink = (255, 255, 255)
    if glyph in WHITE_PLATES:
        ink, top, bottom = colour, (255, 255, 255), (226, 229, 235)
    light = Image.linear_gradient("L").resize((size, size))
    plate = Image.composite(Image.new("RGB", (size, size), bottom), Image.new("RGB", (size, size), top), light)
    inner = max(4, round(size * 0.6))
    plate.paste(ink, ((size - inner) // 2, (size - inner) // 2), glyph_mask(glyph, inner, strokes))
    plate.putalpha(shape_mask(size, size, radius))
    return plate
