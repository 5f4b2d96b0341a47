"""Contact sheets: all screens of an episode, or of a trace, in one picture.

A step of a trace is its screen with its action, and with the outcome of every action that was not certainly performed.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from vlm_agent.datasets.sources.traces import DONE, IN_DOUBT, OUTCOME_WORDS, Trace, TraceStep
from vlm_agent.drawing import shapes
from vlm_agent.drawing.actions import EXPERT, PREDICTED, describe, describe_with_place, draw_action, draw_words
from vlm_agent.drawing.shapes import Colour
from vlm_agent.episodes import Episode
from vlm_agent.errors import DatasetError, UserError
from vlm_agent.files import atomic_write

NOT_PERFORMED: Colour = (96, 100, 108)
DOUBTFUL: Colour = (176, 92, 0)

_SHEET, _INK, _FAINT, _FRAME = (246, 247, 249), (28, 30, 34), (104, 110, 120), (206, 210, 216)
_SHEET_WIDTH = 1600
_MIN_WIDTH, _MIN_CELL_WIDTH = 480, 160
_MARGIN, _GAP, _LINE, _CAPTION_LINES = 32, 20, 21, 3


def contact_sheet(episode: Episode, captions: Sequence[str] | None = None, height: int = 560) -> Image.Image:
    """One picture of the episode: its goal, then rows of screens with their actions.

    `captions`: one per step, for example the action in an action language; by default a description of the action.
    `height` of a screen is in pixels. Raises UserError for an episode without steps or pixels, ValueError for a wrong
    number of captions.
    """
    # Scaled first, so that the marks are sharp.
    screens = [
        draw_action(shapes.scaled(step.screenshot, height), step.action, EXPERT, elements=step.elements)
        for step in episode.steps
        if step.screenshot is not None
    ]
    if not screens or len(screens) < len(episode):
        raise UserError(f"episode {episode.id} has no screens to draw")
    captions = [describe(step.action) for step in episode.steps] if captions is None else captions
    if len(captions) != len(episode):
        raise ValueError(f"episode {episode.id} has {len(episode)} steps but {len(captions)} captions")
    facts = f"{episode.subset} · {len(episode)} steps · episode {episode.id}"
    return _sheet(episode.goal, facts, screens, captions)


def trace_sheet(trace: Trace, height: int = 560) -> Image.Image:
    """One picture of a trace: its goal, the counts of the outcomes, then every step with its action and the agent's
    answer (see `draw_step`). Raises DatasetError for a trace without steps, and for a screen that cannot be read."""
    check_steps(trace)
    facts = f"{trace.heading.subset} · {outcomes_in_words(trace)} · trace {trace.folder.name}"
    screens = [draw_step(trace, step, height) for step in trace.steps]
    return _sheet(trace.heading.goal, facts, screens, [step.answer for step in trace.steps])


def draw_step(trace: Trace, step: TraceStep, height: int) -> Image.Image:
    """The screen scaled to `height` pixels, with its action: `PREDICTED` if it was performed, `DOUBTFUL` with the label
    "in doubt", or `NOT_PERFORMED` with its outcome as the label. The mark is drawn after scaling, so that it is sharp.

    Raises DatasetError for a screen that cannot be read.
    """
    screen = shapes.scaled(trace.screen(step), height)
    elements = step.elements or ()
    if step.outcome == DONE and step.action is not None:
        return draw_action(screen, step.action, PREDICTED, elements=elements)
    label, colour = OUTCOME_WORDS[step.outcome], DOUBTFUL if step.outcome == IN_DOUBT else NOT_PERFORMED
    if step.action is None:
        return draw_words(screen, label, colour)
    return draw_action(screen, step.action, colour, label, elements=elements)


def caption(step: TraceStep, letters: ImageFont.FreeTypeFont, width: float, lines: int) -> list[str]:
    """The agent's answer in at most `lines` lines of `width` pixels.

    An answer that would be cut is replaced by its action and the place of it, because answers end with the action.
    """
    answer = shapes.wrap(step.answer, letters, width, lines)
    if step.action is None or " ".join(answer).split() == step.answer.split():
        return answer
    return shapes.wrap(describe_with_place(step.action), letters, width, lines)


def check_steps(trace: Trace) -> None:
    """Raises DatasetError for a trace without steps."""
    if not trace.steps:
        raise DatasetError(f"{trace.folder} has no steps to draw")


def outcomes_in_words(trace: Trace) -> str:
    """For example `4 steps: 3 performed, 1 withheld`."""
    counts = [f"{number} {OUTCOME_WORDS[outcome]}" for outcome, number in trace.outcomes().items()]
    return f"{len(trace.steps)} steps" + (f": {', '.join(counts)}" if counts else "")


def save_sheet(sheet: Image.Image, output: Path) -> None:
    """Writes a picture to a PNG file, and creates its folder if necessary."""
    with atomic_write(output) as temporary:
        sheet.save(temporary, format="PNG")


def _sheet(goal: str, facts: str, screens: Sequence[Image.Image], captions: Sequence[str]) -> Image.Image:
    cells = _cells(screens, captions)
    columns = _columns(len(cells), cells[0].width)
    width = max(columns * (cells[0].width + _GAP) - _GAP, _MIN_WIDTH)
    title = _title(goal, facts, width)
    rows = math.ceil(len(cells) / columns)
    sheet_height = 2 * _MARGIN + title.height + rows * (_GAP + cells[0].height)
    sheet = Image.new("RGB", (width + 2 * _MARGIN, sheet_height), _SHEET)
    sheet.paste(title, (_MARGIN, _MARGIN))
    for index, cell in enumerate(cells):
        row, column = divmod(index, columns)
        x, y = column * (cell.width + _GAP), title.height + _GAP + row * (cell.height + _GAP)
        sheet.paste(cell, (_MARGIN + x, _MARGIN + y))
    return sheet


def _columns(count: int, cell_width: int) -> int:
    """The number of columns: as many as fit, reduced so that all rows have about the same length."""
    fitting = max(1, (_SHEET_WIDTH + _GAP) // (cell_width + _GAP))
    return math.ceil(count / math.ceil(count / fitting))


def _title(goal: str, facts: str, width: int) -> Image.Image:
    large, small = shapes.font(26, bold=True), shapes.font(16)
    lines = shapes.wrap(goal, large, width, lines=3)
    title = Image.new("RGB", (width, 34 * len(lines) + 26), _SHEET)
    draw = ImageDraw.Draw(title)
    for number, line in enumerate(lines):
        draw.text((0, 34 * number), line, _INK, large)
    draw.text((0, 34 * len(lines) + 2), shapes.shorten(facts, small, width), _FAINT, small)
    return title


def _cells(screens: Sequence[Image.Image], captions: Sequence[str]) -> list[Image.Image]:
    """Framed screens of equal size, each above its step's number and caption."""
    letters, bold = shapes.font(16), shapes.font(16, bold=True)
    width = max(_MIN_CELL_WIDTH, *(screen.width for screen in screens))
    indent = bold.getlength(str(len(screens))) + 10
    wrapped = [shapes.wrap(caption, letters, width - indent, _CAPTION_LINES) for caption in captions]
    text_height = 14 + _LINE * max(len(lines) for lines in wrapped)
    size = (width, max(screen.height for screen in screens) + text_height)
    cells = []
    for number, (screen, lines) in enumerate(zip(screens, wrapped, strict=True), start=1):
        cell = Image.new("RGB", size, _SHEET)
        cell.paste(screen, (0, 0))
        draw = ImageDraw.Draw(cell)
        draw.rectangle((0, 0, screen.width - 1, screen.height - 1), outline=_FRAME)
        draw.text((0, screen.height + 8), str(number), EXPERT, bold)
        for line_number, line in enumerate(lines):
            draw.text((indent, screen.height + 8 + _LINE * line_number), line, _INK, letters)
        cells.append(cell)
    return cells
