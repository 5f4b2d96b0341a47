"""Draws what each stage found over the screen: texts, widgets, parts and blocks, side by side."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from vlm_agent.drawing.marks import COLOURS, draw_marks
from vlm_agent.drawing.shapes import BLACK, WHITE, Colour, font
from vlm_agent.episodes import WIDGET_KINDS
from vlm_agent.screens.seen import Box, Understood

LONGEST_SIDE = 1400
"""Screens are scaled down to it before they are drawn on, in pixels."""

NARROWEST, HEADING, MARGIN = 240, 36, 12
"""The sizes of a column, in pixels: least width, height of its heading, and distance to the next one."""


def draw_stages(pixels: np.ndarray, understood: Understood) -> Image.Image:
    """One column for each stage. Parts have their ids, icons their meanings, blocks their places in the description."""
    image = Image.fromarray(pixels)
    scale = min(1.0, LONGEST_SIDE / max(image.size))
    screen = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))
    texts, widgets, parts, blocks = understood.texts, understood.widgets, understood.parts, understood.blocks
    meanings = [(part.box, _label(part.meaning, None), 0) for part in parts if part.meaning]
    kinds = [(one.box, _label(one.kind, one.on), WIDGET_KINDS.index(one.kind)) for one in widgets]
    numbered = [(block.box, str(number + 1), number) for number, block in enumerate(blocks)]
    columns = [
        (f"{len(texts)} texts", _boxes(screen, [(text.box, "", 0) for text in texts])),
        (f"{len(widgets)} widgets", _boxes(screen, kinds)),
        (f"{len(parts)} parts", draw_marks(screen, understood.elements)),
        (f"{len(meanings)} icons", _boxes(screen, meanings)),
        (f"{len(blocks)} blocks", _boxes(screen, numbered)),
    ]
    return _side_by_side(columns)


def _label(kind: str, on: bool | None) -> str:
    state = {None: "", True: " on", False: " off"}[on]
    return kind.replace("_", " ") + state


def _boxes(screen: Image.Image, found: Sequence[tuple[Box, str, int]]) -> Image.Image:
    """A copy of the screen with boxes, their labels above their upper left corners. `found`: box, label and number of
    the colour."""
    drawn = screen.copy()
    draw = ImageDraw.Draw(drawn)
    unit = min(drawn.size) / 100
    for box, label, number in found:
        colour = COLOURS[number % len(COLOURS)]
        left, top = round(box[1] * drawn.width), round(box[0] * drawn.height)
        right, bottom = round((box[1] + box[3]) * drawn.width) - 1, round((box[0] + box[2]) * drawn.height) - 1
        draw.rectangle((left, top, max(left, right), max(top, bottom)), outline=colour, width=max(1, round(0.4 * unit)))
        if label:
            _write(drawn, (left, top), label, colour, unit)
    return drawn


def _write(drawn: Image.Image, at: tuple[int, int], text: str, colour: Colour, unit: float) -> None:
    """Whole at any edge, where the picture is wide enough for the text."""
    draw, letters = ImageDraw.Draw(drawn), font(max(9, round(2.2 * unit)), bold=True)
    width = letters.getlength(text) + 2
    left, top = max(0.0, min(at[0], drawn.width - width)), max(0.0, at[1] - letters.size)
    draw.rectangle((left, top, left + width, top + letters.size), fill=colour)
    draw.text((left + 1, top), text, WHITE, letters)


def _side_by_side(columns: Sequence[tuple[str, Image.Image]]) -> Image.Image:
    width = max(NARROWEST, *(image.width for _, image in columns))
    height = max(image.height for _, image in columns)
    sheet = Image.new("RGB", (len(columns) * (width + MARGIN) - MARGIN, height + HEADING), WHITE)
    draw = ImageDraw.Draw(sheet)
    for number, (heading, image) in enumerate(columns):
        left = number * (width + MARGIN)
        draw.text((left, HEADING / 2), heading, BLACK, font(20, bold=True), anchor="lm")
        sheet.paste(image, (left, HEADING))
    return sheet
