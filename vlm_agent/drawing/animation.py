"""Traces as animated GIFs: each screen with its action and outcome, the goal above and the agent's answer below."""

import io
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from vlm_agent.datasets.sources.traces import Trace
from vlm_agent.drawing import shapes
from vlm_agent.drawing.contact_sheet import caption, check_steps, draw_step
from vlm_agent.files import atomic_write

MAX_BYTES = 1_000_000
"""A larger GIF is drawn again with smaller screens."""

_HEIGHTS = (560, 448, 336, 252)
_MILLISECONDS, _LAST_MILLISECONDS = 1400, 3500
_COLOURS = 128
_MARGIN, _LINE, _GOAL_LINES, _CAPTION_LINES = 12, 22, 2, 3
_MIN_WIDTH = 240
"""In pixels, so that narrow screens leave room for the words."""

_GROUND, _INK, _FAINT = (246, 247, 249), (28, 30, 34), (104, 110, 120)


def animate(trace: Trace, output: Path) -> None:
    """Writes an endlessly repeating GIF with the largest screens that keep it within `MAX_BYTES`.

    If even the smallest screens exceed `MAX_BYTES`, they are used. Raises DatasetError for a trace without steps, and
    for a screen that cannot be read.
    """
    check_steps(trace)
    for height in _HEIGHTS:
        data = _gif(_frames(trace, height))
        if len(data) <= MAX_BYTES:
            break
    with atomic_write(output) as part:
        part.write_bytes(data)


def _gif(frames: list[Image.Image]) -> bytes:
    durations = [_MILLISECONDS] * (len(frames) - 1) + [_LAST_MILLISECONDS]
    # Dithering would cost more bytes than the rest of the picture.
    quantised = [frame.quantize(_COLOURS, dither=Image.Dither.NONE) for frame in frames]
    file = io.BytesIO()
    quantised[0].save(
        file, "GIF", save_all=True, append_images=quantised[1:], duration=durations, loop=0, optimize=True
    )
    return file.getvalue()


def _frames(trace: Trace, height: int) -> list[Image.Image]:
    """One picture per step, all of one size. `height` of a screen is in pixels."""
    screens = [draw_step(trace, step, height) for step in trace.steps]
    letters, bold = shapes.font(15), shapes.font(15, bold=True)
    width = max(_MIN_WIDTH, *(screen.width for screen in screens))
    indent = letters.getlength(f"{len(screens)}/{len(screens)}") + 10
    captions = [caption(step, letters, width - indent, _CAPTION_LINES) for step in trace.steps]
    goal = shapes.wrap(trace.heading.goal, bold, width, _GOAL_LINES)
    top, bottom = _MARGIN + _GOAL_LINES * _LINE, max(len(lines) for lines in captions) * _LINE + 2 * _MARGIN
    frames = []
    for number, (screen, lines) in enumerate(zip(screens, captions, strict=True), start=1):
        frame = Image.new("RGB", (width + 2 * _MARGIN, top + height + bottom), _GROUND)
        draw = ImageDraw.Draw(frame)
        _write(draw, (_MARGIN, 0.7 * _MARGIN), goal, _INK, bold)
        frame.paste(screen, (_MARGIN + (width - screen.width) // 2, top))
        below = top + height + 0.7 * _MARGIN
        draw.text((_MARGIN, below), f"{number}/{len(screens)}", _FAINT, letters)
        _write(draw, (_MARGIN + indent, below), lines, _INK, letters)
        frames.append(frame)
    return frames


def _write(
    draw: ImageDraw.ImageDraw, at: shapes.Point, lines: list[str], ink: shapes.Colour, letters: ImageFont.FreeTypeFont
) -> None:
    for number, line in enumerate(lines):
        draw.text((at[0], at[1] + number * _LINE), line, ink, letters)
