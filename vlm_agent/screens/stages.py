"""Draws what each stage found over the screen: texts, widgets, parts and blocks, side by side."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, UnidentifiedImageError

from vlm_agent.drawing.marks import COLOURS, draw_marks
from vlm_agent.drawing.shapes import BLACK, WHITE, Colour, font
from vlm_agent.episodes import WIDGET_KINDS
from vlm_agent.errors import UserError
from vlm_agent.screens.seen import Box, Understood

LONGEST_SIDE = 1400
"""Screens are scaled down to it before they are drawn on, in pixels."""

NARROWEST, HEADING, MARGIN = 240, 36, 12
"""Of a column, in pixels: least width, height of its heading, and distance to the next one."""


def read_picture(path: Path) -> np.ndarray:
    """The pixels of an image file, uint8 (height, width, 3), RGB; grey and transparent pictures become RGB, and 16 bits
    of grey become 8.

    Raises UserError for a file that is not a picture or has too many pixels.
    """
    try:
        with Image.open(path) as image:
            return np.array(_of_8_bits(image).convert("RGB"))
    except UnidentifiedImageError:
        raise UserError(f"{path} is not a picture that Pillow can read; use a PNG or JPEG file") from None
    except Image.DecompressionBombError as error:
        raise UserError(f"{path} is too large to be a screen: {error}") from None
    except (OSError, SyntaxError, ValueError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise UserError(f"{path} is damaged: {error}") from None


def _of_8_bits(image: Image.Image) -> Image.Image:
    """Pillow would clip greys of 16 bits to white."""
    if not image.mode.startswith("I;16"):
        return image
    return Image.fromarray((np.asarray(image) // 257).astype(np.uint8))


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
            _write(draw, (left, top), labels[number], colour, unit)
    return drawn


def _write(draw: ImageDraw.ImageDraw, at: tuple[float, float], text: str, colour: Colour, unit: float) -> None:
    letters = font(max(9, round(2.2 * unit)), bold=True)
    left, top = at[0], max(0.0, at[1] - letters.size)
    draw.rectangle((left, top, left + letters.getlength(text) + 2, top + letters.size), fill=colour)
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
