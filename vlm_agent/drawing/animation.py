"""Traces as animated GIFs: each screen with its action, the goal above and the agent's answer below."""

import io
from pathlib import Path

from PIL import Image, ImageDraw

from vlm_agent.datasets.sources.traces import Trace, TraceStep
from vlm_agent.drawing import shapes
from vlm_agent.drawing.actions import PREDICTED, draw_action
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write

MAX_BYTES = 1_000_000
"""A larger GIF is drawn again with smaller screens."""

_HEIGHTS = (560, 448, 336, 252)
_MILLISECONDS, _LAST_MILLISECONDS = 1400, 3500
_COLOURS = 128
_MARGIN, _LINE, _GOAL_LINES = 12, 22, 2
_GROUND, _INK, _FAINT = (246, 247, 249), (28, 30, 34), (104, 110, 120)


def animate(trace: Trace, output: Path) -> None:
    """Writes an endlessly repeating GIF with the largest screens that keep it within `MAX_BYTES`.

    If even the smallest screens exceed `MAX_BYTES`, they are used. Raises DatasetError for a trace without steps, and
    for a screen that cannot be read.
    """
    if not trace.steps:
        raise DatasetError(f"{trace.folder} has no steps to draw")
    for height in _HEIGHTS:
        data = _gif([_frame(trace, step, height) for step in trace.steps])
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


def _frame(trace: Trace, step: TraceStep, height: int) -> Image.Image:
    screen = Image.fromarray(trace.screen(step))
    screen = screen.resize((max(1, round(screen.width * height / screen.height)), height), Image.Resampling.LANCZOS)
    if step.action is not None:
        screen = draw_action(screen, step.action, PREDICTED)
    letters, bold = shapes.font(15), shapes.font(15, bold=True)
    top = _MARGIN + _GOAL_LINES * _LINE
    frame = Image.new("RGB", (screen.width + 2 * _MARGIN, top + height + _LINE + 2 * _MARGIN), _GROUND)
    draw = ImageDraw.Draw(frame)
    for number, line in enumerate(shapes.wrap(trace.heading.goal, bold, screen.width, _GOAL_LINES)):
        draw.text((_MARGIN, 0.7 * _MARGIN + number * _LINE), line, _INK, bold)
    frame.paste(screen, (_MARGIN, top))
    place = f"{step.number + 1}/{len(trace.steps)}"
    indent = letters.getlength(place) + 10
    answer = shapes.shorten(" ".join(step.answer.split()), letters, screen.width - indent)
    draw.text((_MARGIN, top + height + 0.7 * _MARGIN), place, _FAINT, letters)
    draw.text((_MARGIN + indent, top + height + 0.7 * _MARGIN), answer, _INK, letters)
    return frame
