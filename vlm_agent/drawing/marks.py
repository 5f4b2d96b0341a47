"""Elements as numbered boxes on a screen, for a model that names an element by its number."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from vlm_agent.drawing import shapes
from vlm_agent.drawing.shapes import WHITE, Colour
from vlm_agent.episodes import UiElement

COLOURS: tuple[Colour, ...] = ((200, 30, 30), (0, 95, 190), (0, 115, 55), (150, 40, 150))
"""Neighbouring numbers have different colours, so that nested boxes can be distinguished."""


def numbered(pixels: np.ndarray, elements: Sequence[UiElement]) -> np.ndarray:
    """`draw_marks` on pixels, uint8 (height, width, 3)."""
    return np.asarray(draw_marks(Image.fromarray(pixels), elements))


def draw_marks(image: Image.Image, elements: Sequence[UiElement]) -> Image.Image:
    """A copy of `image`, in RGB, with a box around every element and its index, from 0, left of the box's upper corner.

    A number within the box would hide the first letters of a text. Numbers are drawn after all boxes, and those of
    smaller elements last, so that they can be read.
    """
    drawn = image.convert("RGB")
    unit = min(drawn.size) / 100
    corners = [shapes.corners(drawn, element.box) for element in elements]
    areas = [(right - left) * (bottom - top) for left, top, right, bottom in corners]
    order = sorted(range(len(elements)), key=lambda index: -areas[index])
    draw = ImageDraw.Draw(drawn)
    for index in order:
        draw.rectangle(corners[index], outline=COLOURS[index % len(COLOURS)], width=max(1, round(0.4 * unit)))
    for index in order:
        _number(draw, str(index), COLOURS[index % len(COLOURS)], corners[index], unit)
    return drawn


def _number(draw: ImageDraw.ImageDraw, text: str, colour: Colour, corners: shapes.Box, unit: float) -> None:
    letters = shapes.font(max(9, round(2.6 * unit)), bold=True)
    pad = max(1, round(0.3 * unit))
    width, height = round(letters.getlength(text)) + 2 * pad, round(0.75 * letters.size) + 2 * pad
    left, top = max(round(corners[0]) - width, 0), round(corners[1])
    draw.rectangle((left, top, left + width, top + height), fill=colour)
    draw.text((left + pad, top + pad), text, WHITE, letters, anchor="lt")
