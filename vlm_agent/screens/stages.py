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
    screen = _scaled(Image.fromarray(pixels))
    texts, widgets, parts, blocks = understood.texts, understood.widgets, understood.parts, understood.blocks
    icons = [part for part in parts if part.meaning]
    columns = [
        (f"{len(texts)} texts", _boxes(screen, [text.box for text in texts])),
        (
            f"{len(widgets)} widgets",
            _boxes(
                screen,
                [widget.box for widget in widgets],
                [_label(widget.kind, widget.on) for widget in widgets],
                [WIDGET_KINDS.index(widget.kind) for widget in widgets],
            ),
        ),
        (f"{len(parts)} parts", draw_marks(screen, understood.elements)),
        (
            f"{len(icons)} icons",
            _boxes(screen, [part.box for part in icons], [_label(part.meaning, None) for part in icons]),
        ),
        (
            f"{len(blocks)} blocks",
            _boxes(
                screen,
                [block.box for block in blocks],
                [str(number + 1) for number in range(len(blocks))],
                range(len(blocks)),
            ),
        ),
    ]
    return _side_by_side(columns)


def _label(kind: str, on: bool | None) -> str:
    state = {None: "", True: " on", False: " off"}[on]
    return kind.replace("_", " ") + state


def _scaled(image: Image.Image) -> Image.Image:
    scale = min(1.0, LONGEST_SIDE / max(image.size))
    return image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))


def _boxes(
    screen: Image.Image, boxes: Sequence[Box], labels: Sequence[str] = (), colours: Sequence[int] = ()
) -> Image.Image:
    """A copy of the screen with boxes, their labels above their upper left corners."""
    drawn = screen.copy()
    draw = ImageDraw.Draw(drawn)
    unit = min(drawn.size) / 100
    for number, box in enumerate(boxes):
        colour = COLOURS[(colours[number] if colours else 0) % len(COLOURS)]
        left, top = round(box[1] * drawn.width), round(box[0] * drawn.height)
        right, bottom = round((box[1] + box[3]) * drawn.width) - 1, round((box[0] + box[2]) * drawn.height) - 1
        draw.rectangle((left, top, max(left, right), max(top, bottom)), outline=colour, width=max(1, round(0.4 * unit)))
        if labels:
            _write(drawn, (left, top), labels[number], colour, unit)
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
