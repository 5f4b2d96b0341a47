"""Controls that no simulated screen draws, or draws in one look only: check box, radio button, spinner, bars, dots.

A function samples the look of one control and returns it as a `Control`. Lengths are in canvas units. The sizes span
those of Material Design, with 1 unit = 2 dp.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw

from shipped_weights.screens.styles import any_colour, readable_on
from vlm_agent.simulator.drawing.canvas import Box, Canvas
from vlm_agent.simulator.drawing.theme import Colour, Theme, mix
from vlm_agent.simulator.drawing.widgets import switch

WHITE = (255, 255, 255)
_LEAST_CONTRAST = 120
"""The least sum of the differences of red, green and blue."""

_STAR_MARGIN = 2.2 / 24
"""The part of a star's square that is empty at each side."""


@dataclass(frozen=True, slots=True)
class Control:
    """`draw(canvas, x, y)` draws it with its top left corner at (x, y) and records its widgets. `on`: its state; None
    for a control without one."""

    wide: float
    tall: float
    draw: Callable[[Canvas, float, float], None]
    on: bool | None = None


def around(boxes: Sequence[Box]) -> Box:
    """The smallest box that contains all `boxes`."""
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return (min(lefts), min(tops), max(rights), max(bottoms))


def tint(rng: random.Random, theme: Theme) -> Colour:
    """The theme's accent colour, or another colour; black or white if that would not be visible on the background."""
    colour = theme.accent if rng.random() < 0.6 else mix(any_colour(rng, 0.8), theme.ink, 0.15)
    is_visible = sum(abs(one - other) for one, other in zip(colour, theme.background, strict=True)) > _LEAST_CONTRAST
    return colour if is_visible else readable_on(theme.background)


def check_box(rng: random.Random, theme: Theme) -> Control:
    """A square or round box; checked, it is filled or only holds a check mark."""
    side, on, colour = rng.uniform(8.5, 15), rng.random() < 0.5, tint(rng, theme)
    radius = rng.choice((0.0, 1.5, 3.0, side / 2))
    is_filled, border = rng.random() < 0.75, mix(theme.ink, theme.background, rng.uniform(0, 0.45))

    def draw(canvas: Canvas, x: float, y: float) -> None:
        if on and is_filled:
            box = canvas.rect(x, y, side, side, colour, radius)
        else:
            box = ring(canvas, x, y, side, side, colour if on else border, radius)
        if on:
            ink = readable_on(colour) if is_filled else colour
            canvas.glyph("check", x + side / 2, y + side / 2, side * 0.8, ink, note=False)
        canvas.widget("check_box", box, on)

    return Control(side, side, draw, on)


def radio_button(rng: random.Random, theme: Theme, on: bool | None = None) -> Control:
    """One button of a radio group: a ring, with a disc in it if it is chosen."""
    side, colour = rng.uniform(8.5, 14), tint(rng, theme)
    is_on = rng.random() < 0.5 if on is None else on
    border, inner = mix(theme.ink, theme.background, rng.uniform(0, 0.45)), rng.uniform(0.42, 0.58)
    is_filled = rng.random() < 0.2

    def draw(canvas: Canvas, x: float, y: float) -> None:
        if is_on and is_filled:
            box = canvas.rect(x, y, side, side, colour, side / 2)
        else:
            box = ring(canvas, x, y, side, side, colour if is_on else border, side / 2)
        if is_on:
            dot, ink = side * inner, readable_on(colour) if is_filled else colour
            canvas.rect(x + (side - dot) / 2, y + (side - dot) / 2, dot, dot, ink, dot / 2)
        canvas.widget("radio_group", box, is_on)

    return Control(side, side, draw, is_on)


def spinner(rng: random.Random, theme: Theme, text: str) -> Control:
    """A text with a mark that points down at its right end, in a frame, on a ground, over a line, or bare."""
    wide, tall, size = rng.uniform(44, 180), rng.uniform(16, 30), rng.uniform(9.5, 13)
    look = rng.choice(("frame", "ground", "line", "line", "bare"))
    radius, mark = rng.choice((0.0, 3.0, 6.0, tall / 2)), rng.choice(("triangle", "triangle", "chevron"))
    ink = mix(theme.ink, theme.background, rng.uniform(0, 0.35))

    def draw(canvas: Canvas, x: float, y: float) -> None:
        box = (canvas.px(x), canvas.px(y), canvas.px(x + wide), canvas.px(y + tall))
        if look == "frame":
            ring(canvas, x, y, wide, tall, mix(ink, theme.background, 0.4), radius)
        elif look == "ground":
            canvas.rect(x, y, wide, tall, mix(theme.background, theme.ink, rng.uniform(0.06, 0.16)), radius)
        elif look == "line":
            canvas.rect(x, y + tall - 1, wide, 1, ink)
        inset = 1.0 if look in ("line", "bare") else 7.0
        end, middle = x + wide - inset, y + tall / 2
        label = canvas.text(x + inset, middle, text, size, ink, width=wide - 2 * inset - 12)
        if mark == "triangle":
            points = ((end - 7, middle - 1.8), (end, middle - 1.8), (end - 3.5, middle + 1.9))
            tip = polygon(canvas, points, ink)
        else:
            tip = canvas.glyph("down", end - 5, middle, 10, ink, note=False)
        canvas.widget("spinner", around((label, tip)) if look == "bare" else box)

    return Control(wide, tall, draw)


def seek_bar(rng: random.Random, theme: Theme) -> Control:
    """A track, its part before the thumb in colour, and a thumb that is a disc, a bar or missing."""
    wide, track, thumb = rng.uniform(60, 185), rng.uniform(1.2, 5), rng.uniform(7, 13)
    share, colour = rng.uniform(0.04, 0.96), tint(rng, theme)
    look = rng.choice(("disc", "disc", "disc", "ring", "bar"))
    rest = mix(colour if rng.random() < 0.5 else theme.ink, theme.background, rng.uniform(0.6, 0.8))

    def draw(canvas: Canvas, x: float, y: float) -> None:
        middle, at = y + thumb / 2, x + share * (wide - thumb)
        boxes = [canvas.rect(x, middle - track / 2, wide, track, rest, track / 2)]
        canvas.rect(x, middle - track / 2, at + thumb / 2 - x, track, colour, track / 2)
        if look == "bar":
            boxes.append(canvas.rect(at + thumb / 2 - 1, y, 2.2, thumb, colour, 1))
        else:
            boxes.append(canvas.rect(at, y, thumb, thumb, colour, thumb / 2))
        if look == "ring":
            canvas.rect(at + 1.5, y + 1.5, thumb - 3, thumb - 3, theme.background, thumb / 2)
        canvas.widget("seek_bar", around(boxes))

    return Control(wide, thumb, draw)


def rating_bar(rng: random.Random, theme: Theme) -> Control:
    """Five stars, some of them filled; the others are pale or outlined."""
    side, gap = rng.uniform(7.5, 22), rng.uniform(0, 4)
    chosen, colour = rng.randint(0, 5), rng.choice(((245, 176, 24), (251, 140, 0), tint(rng, theme)))
    rest, is_outlined = mix(theme.ink, theme.background, rng.uniform(0.5, 0.8)), rng.random() < 0.4
    wide = 5 * side + 4 * gap

    def draw(canvas: Canvas, x: float, y: float) -> None:
        boxes = []
        for star in range(5):
            at = (x + star * (side + gap) + side / 2, y + side / 2)
            if star < chosen:
                boxes.append(canvas.glyph("star", *at, side, colour, note=False))
            else:
                boxes.append(canvas.glyph("star_outline" if is_outlined else "star", *at, side, rest, note=False))
        left, top, right, bottom = around(boxes)
        inset = round(_STAR_MARGIN * (bottom - top))
        canvas.widget("rating_bar", (left + inset, top + inset, right - inset, bottom - inset))

    return Control(wide, side, draw)


def page_indicator(rng: random.Random, theme: Theme) -> Control:
    """Dots or dashes, one per page; that of the current page has another colour, and may be longer."""
    count, side, gap = rng.randint(2, 8), rng.uniform(2.4, 6), rng.uniform(2.5, 7)
    tall = side if rng.random() < 0.8 else max(1.6, side / 3)
    at, longer = rng.randrange(count), rng.choice((1.0, 1.0, 1.0, 2.4))
    colour = rng.choice((tint(rng, theme), theme.ink, theme.accent))
    rest = mix(colour, theme.background, rng.uniform(0.45, 0.75))
    is_hollow = rng.random() < 0.15
    widths = [side * longer if index == at else side for index in range(count)]

    def draw(canvas: Canvas, x: float, y: float) -> None:
        boxes = []
        for index, wide in enumerate(widths):
            if is_hollow and index != at and tall == side:
                boxes.append(ring(canvas, x, y, wide, tall, rest, tall / 2))
            else:
                boxes.append(canvas.rect(x, y, wide, tall, colour if index == at else rest, tall / 2))
            x += wide + gap
        canvas.widget("page_indicator", around(boxes))

    return Control(sum(widths) + gap * (count - 1), tall, draw)


def toggle(rng: random.Random, theme: Theme) -> Control:
    """A switch: the simulated phone's, or a track with the thumb inside it."""
    on, colour = rng.random() < 0.5, tint(rng, theme)
    if rng.random() < 0.4:
        return Control(25, 14, lambda canvas, x, y: _phone_switch(canvas, x, y, on), on)
    tall, ratio, inset = rng.uniform(9, 17), rng.uniform(1.6, 2.0), rng.uniform(1, 2)
    wide = tall * ratio
    off, is_outlined = mix(theme.ink, theme.background, rng.uniform(0.5, 0.8)), rng.random() < 0.3

    def draw(canvas: Canvas, x: float, y: float) -> None:
        if is_outlined and not on:
            box, thumb = ring(canvas, x, y, wide, tall, off, tall / 2), off
        else:
            box, thumb = canvas.rect(x, y, wide, tall, colour if on else off, tall / 2), WHITE
        side = tall - 2 * inset
        canvas.rect(x + (wide - inset - side if on else inset), y + inset, side, side, thumb, side / 2)
        canvas.widget("switch", box, on)

    return Control(wide, tall, draw, on)


def polygon(canvas: Canvas, points: Sequence[tuple[float, float]], colour: Colour) -> Box:
    """Draws a filled polygon with corners at `points` (x, y); returns its box."""
    xs, ys = zip(*points, strict=True)
    left, top = canvas.px(min(xs)), canvas.px(min(ys))
    right, bottom = max(left + 1, canvas.px(max(xs))), max(top + 1, canvas.px(max(ys)))
    mask = Image.new("L", (4 * (right - left), 4 * (bottom - top)))
    corners = [(4 * (x * canvas.unit - left), 4 * (y * canvas.unit - top)) for x, y in points]
    ImageDraw.Draw(mask).polygon(corners, fill=255)
    canvas.image.paste(colour, (left, top, right, bottom), mask.reduce(4))
    return (left, top, right, bottom)


def _phone_switch(canvas: Canvas, x: float, y: float, on: bool) -> None:
    switch(canvas, x + 25, y + 7, on)


def ring(canvas: Canvas, x: float, y: float, wide: float, tall: float, colour: Colour, radius: float) -> Box:
    """The border of a rounded rectangle; its inside stays as it is."""
    left, top, right, bottom = canvas.px(x), canvas.px(y), canvas.px(x + wide), canvas.px(y + tall)
    right, bottom = max(left + 3, right), max(top + 3, bottom)
    edge = max(1.0, 0.9 * canvas.unit)
    mask = Image.new("L", (4 * (right - left), 4 * (bottom - top)))
    ImageDraw.Draw(mask).rounded_rectangle(
        (0, 0, mask.width - 1, mask.height - 1), 4 * radius * canvas.unit, outline=255, width=round(4 * edge)
    )
    canvas.image.paste(colour, (left, top, right, bottom), mask.reduce(4))
    return (left, top, right, bottom)
