"""A trace as one moving picture: each screen with what was done on it, the goal above, what was said below."""

import io
from pathlib import Path

from PIL import Image, ImageDraw

from vlm_agent.datasets import DatasetError, written_whole
from vlm_agent.datasets.trace_lines import TraceStep
from vlm_agent.datasets.traces import Trace
from vlm_agent.screens import marks
from vlm_agent.screens.drawing import PREDICTED, draw_action

MOST_BYTES = 1_000_000
"""Where the picture is larger, it is drawn again on smaller screens."""

_HEIGHTS = (560, 448, 336, 252)
_MILLISECONDS, _LAST_MILLISECONDS = 1400, 3500
_COLOURS = 128
_MARGIN, _LINE, _GOAL_LINES = 12, 22, 2
_GROUND, _INK, _FAINT = (246, 247, 249), (28, 30, 34), (104, 110, 120)


def animate(trace: Trace, output: Path) -> None:
    """Writes a GIF that goes round for ever, of at most `MOST_BYTES` if that can be had.

    Raises DatasetError where the trace has no step, or a screen of it cannot be read.
    """
    if not trace.steps:
        raise DatasetError(f"{trace.folder} has no step to draw")
    for height in _HEIGHTS:
        data = _gif([_frame(trace, step, height) for step in trace.steps])
        if len(data) <= MOST_BYTES:
            break
    with written_whole(output) as part:
        part.write_bytes(data)


def _gif(frames: list[Image.Image]) -> bytes:
    durations = [_MILLISECONDS] * (len(frames) - 1) + [_LAST_MILLISECONDS]
    # Without dithering, whose specks cost more bytes than the picture.
    few = [frame.quantize(_COLOURS, dither=Image.Dither.NONE) for frame in frames]
    file = io.BytesIO()
    few[0].save(file, "GIF", save_all=True, append_images=few[1:], duration=durations, loop=0, optimize=True)
    return file.getvalue()


def _frame(trace: Trace, step: TraceStep, height: int) -> Image.Image:
    screen = Image.fromarray(trace.screen(step))
    screen = screen.resize((max(1, round(screen.width * height / screen.height)), height), Image.Resampling.LANCZOS)
    if step.action is not None:
        screen = draw_action(screen, step.action, PREDICTED)
    letters, bold = marks.font(15), marks.font(15, bold=True)
    top = _MARGIN + _GOAL_LINES * _LINE
    frame = Image.new("RGB", (screen.width + 2 * _MARGIN, top + height + _LINE + 2 * _MARGIN), _GROUND)
    draw = ImageDraw.Draw(frame)
    for number, line in enumerate(marks.wrap(trace.heading.goal, bold, screen.width, _GOAL_LINES)):
        draw.text((_MARGIN, 0.7 * _MARGIN + number * _LINE), line, _INK, bold)
    frame.paste(screen, (_MARGIN, top))
    place = f"{step.number + 1}/{len(trace.steps)}"
    indent = letters.getlength(place) + 10
    said = marks.shorten(" ".join(step.said.split()), letters, screen.width - indent)
    draw.text((_MARGIN, top + height + 0.7 * _MARGIN), place, _FAINT, letters)
    draw.text((_MARGIN + indent, top + height + 0.7 * _MARGIN), said, _INK, letters)
    return frame
