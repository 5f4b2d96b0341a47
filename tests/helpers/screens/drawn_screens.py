"""Screens drawn from rectangles, and parts in pixels."""

import numpy as np
from PIL import Image, ImageDraw

from vlm_agent.screens.seen import Part
from vlm_agent.simulator import SimulatedPhone

Rectangle = tuple[int, int, int, int]
"""(top, left, bottom, right) in pixels."""

HEIGHT, WIDTH = 800, 400


def draw(*boxes: tuple[Rectangle, str | tuple[int, int, int]], ground: str = "white", radius: int = 0) -> np.ndarray:
    """uint8 (800, 400, 3): filled rectangles over a ground."""
    image = Image.new("RGB", (WIDTH, HEIGHT), ground)
    pen = ImageDraw.Draw(image)
    for (top, left, bottom, right), colour in boxes:
        pen.rounded_rectangle((left, top, right - 1, bottom - 1), radius, colour)
    return np.array(image)


def part(number: int, box: Rectangle, text: str = "", kind: str = "text") -> Part:
    top, left, bottom, right = box
    return Part(number, kind, (top / HEIGHT, left / WIDTH, (bottom - top) / HEIGHT, (right - left) / WIDTH), text)


def annotated_parts(phone: SimulatedPhone) -> tuple[Part, ...]:
    """The annotations of a phone's screen as parts."""
    return tuple(
        Part(number, "text" if one.type == "TEXT" else "image", one.box, one.text)
        for number, one in enumerate(phone.elements())
    )
