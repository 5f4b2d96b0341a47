"""Anti-aliased shapes with a white halo, visible on light and dark screens.

All coordinates are in pixels and in (x, y) order, as in Pillow.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache

import font_roboto
import numpy as np
from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]
Point = tuple[float, float]
Box = tuple[float, float, float, float]

WHITE = (255, 255, 255)
BLACK = (20, 20, 20)

_SMOOTH = 4
"""Oversampling factor of masks; Pillow draws lines and circles without anti-aliasing."""

_WIDEST = 4
"""How many times its height a screen is drawn wide at most."""


@lru_cache(maxsize=64)
def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Roboto, Android's own typeface, at `size` pixels."""
    return ImageFont.truetype(font_roboto.font_files["RobotoBold" if bold else "Roboto"], size)


class Pen:
    """Draws into an oversampled mask whose top left corner is at `origin`. Strokes are `extra` pixels wider on each
    side."""

    def __init__(self, mask: Image.Image, origin: Point, extra: float) -> None:
        self._draw = ImageDraw.Draw(mask)
        self._origin = origin
        self._extra = extra

    def line(self, start: Point, end: Point, width: float) -> None:
        """A line with round ends."""
        radius = (width / 2 + self._extra) * _SMOOTH
        ends = [self._at(start), self._at(end)]
        self._draw.line(ends, fill=255, width=max(1, round(2 * radius)))
        for x, y in ends:
            self._draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)

    def ring(self, centre: Point, radius: float, width: float) -> None:
        (x, y), outer = self._at(centre), (radius + width / 2 + self._extra) * _SMOOTH
        thickness = max(1, round((width + 2 * self._extra) * _SMOOTH))
        self._draw.ellipse((x - outer, y - outer, x + outer, y + outer), outline=255, width=thickness)

    def polygon(self, corners: Sequence[Point]) -> None:
        self._draw.polygon([self._at(corner) for corner in corners], fill=255)
        for start, end in zip(corners, [*corners[1:], corners[0]], strict=True):
            self.line(start, end, 0)

    def pill(self, box: Box) -> None:
        left, top = self._at((box[0] - self._extra, box[1] - self._extra))
        right, bottom = self._at((box[2] + self._extra, box[3] + self._extra))
        self._draw.rounded_rectangle((left, top, right, bottom), radius=(bottom - top) / 2, fill=255)

    def _at(self, point: Point) -> Point:
        return ((point[0] - self._origin[0]) * _SMOOTH, (point[1] - self._origin[1]) * _SMOOTH)


def stamp(image: Image.Image, around: Box, colour: Colour, halo: float, shape: Callable[[Pen], None]) -> None:
    """Draws `shape` into `image`, first in white and wider by `halo`, then in `colour`. `around` must enclose both."""
    left, top = max(0, math.floor(around[0])), max(0, math.floor(around[1]))
    right, bottom = min(image.width, math.ceil(around[2])), min(image.height, math.ceil(around[3]))
    if right <= left or bottom <= top:
        return
    size = (right - left, bottom - top)
    for fill, extra in ((WHITE, halo), (colour, 0.0)):
        mask = Image.new("L", (size[0] * _SMOOTH, size[1] * _SMOOTH))
        shape(Pen(mask, (left, top), extra))
        image.paste(fill, (left, top), mask.resize(size, Image.Resampling.BOX))


def ring(image: Image.Image, centre: Point, colour: Colour, unit: float) -> None:
    """An open ring, wide enough for a small icon and narrow enough to leave the label below an app's icon visible."""
    stamp(image, _around([centre], 9 * unit), colour, 0.4 * unit, lambda pen: pen.ring(centre, 6.6 * unit, 0.8 * unit))


def frame(
    image: Image.Image, first: Point, second: Point, colour: Colour, unit: float, point: Point | None = None
) -> None:
    """A rectangle between two opposite corners, drawn just outside so that its content stays visible. A side on the
    edge of the image is not drawn. With a `point` inside, a tick above and one to the left show where it is: the label
    of an icon is below it."""
    (left, right), (top, bottom) = sorted((first[0], second[0])), sorted((first[1], second[1]))
    gap, tick = 1.2 * unit, 2.4 * unit
    left, top, right, bottom = left - gap, top - gap, right + gap, bottom + gap
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    lines = list(zip(corners, [*corners[1:], corners[0]], strict=True))
    if point is not None:
        lines += [((point[0], top), (point[0], top - tick)), ((left, point[1]), (left - tick, point[1]))]

    def shape(pen: Pen) -> None:
        for start, end in lines:
            pen.line(start, end, 0.9 * unit)

    stamp(image, _around(corners, tick + 2 * unit), colour, 0.4 * unit, shape)


def arrow(image: Image.Image, start: Point, end: Point, colour: Colour, unit: float) -> None:
    """An arrow from a ring at `start` to a head at `end`."""
    angle = math.atan2(end[1] - start[1], end[0] - start[0])
    head = min(7 * unit, max(5 * unit, 0.6 * math.dist(start, end)))
    neck = _from(end, angle, 0.7 * head)
    corners = [end, _from(end, angle + 0.5, head), _from(end, angle - 0.5, head)]

    def shape(pen: Pen) -> None:
        pen.ring(start, 2.2 * unit, 1.4 * unit)
        pen.line(_from(start, angle, -2.2 * unit), neck, 1.8 * unit)
        pen.polygon(corners)

    stamp(image, _around([start, end], 9 * unit), colour, 0.8 * unit, shape)


def pill(image: Image.Image, text: str, colour: Colour, centre: Point, size: float) -> None:
    """Text on a rounded background, moved and shortened to lie within the image."""
    letters = font(max(8, round(size)), bold=True)
    pad = 0.6 * letters.size
    text = shorten(text, letters, image.width - 4 * pad)
    width, height = letters.getlength(text) + 2 * pad, 1.7 * letters.size
    x = min(max(centre[0], width / 2 + pad), image.width - width / 2 - pad)
    y = min(max(centre[1], height / 2 + pad), image.height - height / 2 - pad)
    box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    halo = 0.15 * letters.size
    around = (box[0] - 2 * halo, box[1] - 2 * halo, box[2] + 2 * halo, box[3] + 2 * halo)
    stamp(image, around, colour, halo, lambda pen: pen.pill(box))
    red, green, blue = colour
    ink = BLACK if 0.299 * red + 0.587 * green + 0.114 * blue > 150 else WHITE
    ImageDraw.Draw(image).text((x, y), text, ink, letters, anchor="mm")


def corners(image: Image.Image, box: Sequence[float]) -> Box:
    """(left, top, right, bottom) in pixels within the image, of a box (y, x, height, width) in fractions. A box of
    negative size has swapped corners, which Pillow refuses."""
    y, x, height, width = box
    left, right = sorted(min(max(value, 0.0), 1.0) * (image.width - 1) for value in (x, x + width))
    top, bottom = sorted(min(max(value, 0.0), 1.0) * (image.height - 1) for value in (y, y + height))
    return left, top, right, bottom


def scaled(pixels: np.ndarray, height: int) -> Image.Image:
    """Pixels, uint8 (height, width, 3), at another height; an extremely wide screen becomes narrower."""
    screen = Image.fromarray(pixels)
    width = min(max(1, round(screen.width * height / screen.height)), _WIDEST * height)
    return screen.resize((width, height), Image.Resampling.LANCZOS)


def shorten(text: str, letters: ImageFont.FreeTypeFont, width: float) -> str:
    """`text` in one line, cut off with an ellipsis if it is wider than `width` pixels."""
    text = " ".join(text.split())
    if letters.getlength(text) <= width:
        return text
    fits = bisect_right(range(1, len(text)), width, key=lambda length: letters.getlength(text[:length] + "…"))
    return text[:fits] + "…"


def wrap(text: str, letters: ImageFont.FreeTypeFont, width: float, lines: int) -> list[str]:
    """`text` in at most `lines` lines of `width` pixels; the last line is shortened to fit."""
    wrapped = [""]
    for word in text.split():
        longer = f"{wrapped[-1]} {word}".strip()
        fits = letters.getlength(longer) <= width or not wrapped[-1]
        if not fits and len(wrapped) < lines:
            wrapped.append(word)
            continue
        wrapped[-1] = longer
        if not fits:
            break
    return [shorten(line, letters, width) for line in wrapped]


def _from(point: Point, angle: float, distance: float) -> Point:
    """The point `distance` behind `point` in the direction `angle` (radians)."""
    return (point[0] - distance * math.cos(angle), point[1] - distance * math.sin(angle))


def _around(points: Sequence[Point], margin: float) -> Box:
    xs, ys = zip(*points, strict=True)
    return (min(xs) - margin, min(ys) - margin, max(xs) + margin, max(ys) + margin)
