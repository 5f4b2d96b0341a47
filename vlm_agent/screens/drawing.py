"""Drawing on screens: what was done, what is annotated, and a whole episode on one sheet."""

import json
import math
from collections.abc import Sequence

from PIL import Image, ImageDraw

from vlm_agent.episodes import Action, ActionKind, Episode, Step, UiElement
from vlm_agent.screens import marks
from vlm_agent.screens.marks import Colour, Point

EXPERT: Colour = (0, 138, 72)
PREDICTED: Colour = (222, 0, 120)
"""Green and magenta: colour-blind readers tell them apart, and neither is the blue that interfaces are made of."""

_TEXT_BOX, _ICON_BOX = (0, 110, 200), (200, 30, 130)

_SHEET, _INK, _FAINT, _FRAME = (246, 247, 249), (28, 30, 34), (104, 110, 120), (206, 210, 216)
_SHEET_WIDTH = 1600
_LEAST_WIDTH, _LEAST_CELL_WIDTH = 480, 160
_MARGIN, _GAP, _LINE, _CAPTION_LINES = 32, 20, 21, 3


def draw_action(
    image: Image.Image, action: Action, colour: Colour, label: str | None = None, row: int = 0
) -> Image.Image:
    """A copy of `image`, in RGB, with the action on it; marks keep their proportion to the screen.

    A tap is a cross in a ring, a swipe an arrow; typed text, a button or a status is a pill at the lower edge with its
    words. `label` stands before these words, or in a small pill beside the gesture. Where two actions are drawn on one
    screen, give the second `row` 1: its pill then lies above the first one's.
    """
    drawn = _copy(image)
    unit = min(drawn.size) / 100
    if action.kind is not ActionKind.DUAL_POINT:
        words = describe(action)
        lower_edge = (drawn.width / 2, drawn.height - (17 + 14 * row) * unit)
        marks.pill(drawn, f"{label}: {words}" if label else words, colour, lower_edge, 6 * unit)
        return drawn
    touch, lift = _pixel(drawn, action.touch_yx), _pixel(drawn, action.lift_yx)
    if action.is_tap:
        marks.tap(drawn, touch, colour, unit)
    else:
        marks.arrow(drawn, touch, lift, colour, unit)
    if label:
        side = 1 if touch[1] < drawn.height / 2 else -1
        marks.pill(drawn, label, colour, (touch[0], touch[1] + side * (13 + 10 * row) * unit), 4.5 * unit)
    return drawn


def describe(action: Action) -> str:
    """A few words for a reader: `tap`, `swipe up`, `type "…"`, `press back`, `complete`, `impossible`."""
    if action.is_swipe:
        return f"swipe {action.direction}"
    if action.kind is ActionKind.TYPE:
        return f"type {json.dumps(action.text, ensure_ascii=False)}"
    return f"press {action.name}" if action.kind.name.startswith("PRESS_") else action.name


def draw_elements(image: Image.Image, elements: Sequence[UiElement]) -> Image.Image:
    """A copy of `image`, in RGB, with every element's box and, above it, its text or, for icons, its type."""
    drawn = _copy(image)
    for element in elements:
        _draw_element(drawn, element)
    return drawn


def contact_sheet(episode: Episode, sentences: Sequence[str] | None = None, height: int = 560) -> Image.Image:
    """The episode on one picture: its goal, and its screens with what was done on them, in rows.

    `sentences` are the captions, one a step (what an action language renders, say); without, a few words on each
    action. `height` is that of a screen, in pixels. Raises ValueError for an episode without steps or pixels, or with
    another number of sentences.
    """
    if not episode.steps or any(step.screenshot is None for step in episode.steps):
        raise ValueError(f"episode {episode.id} has no screens to draw")
    captions = [describe(step.action) for step in episode.steps] if sentences is None else list(sentences)
    if len(captions) != len(episode):
        raise ValueError(f"{len(captions)} sentences for the {len(episode)} steps of episode {episode.id}")
    screens = [_marked_screen(step, height) for step in episode.steps]
    cells = _cells(screens, captions)
    columns = _columns(len(cells), cells[0].width)
    width = max(columns * (cells[0].width + _GAP) - _GAP, _LEAST_WIDTH)
    title = _title(episode, width)
    rows = math.ceil(len(cells) / columns)
    sheet_height = 2 * _MARGIN + title.height + rows * (_GAP + cells[0].height)
    sheet = Image.new("RGB", (width + 2 * _MARGIN, sheet_height), _SHEET)
    sheet.paste(title, (_MARGIN, _MARGIN))
    for index, cell in enumerate(cells):
        row, column = divmod(index, columns)
        x, y = column * (cell.width + _GAP), title.height + _GAP + row * (cell.height + _GAP)
        sheet.paste(cell, (_MARGIN + x, _MARGIN + y))
    return sheet


def _copy(image: Image.Image) -> Image.Image:
    return image.copy() if image.mode == "RGB" else image.convert("RGB")


def _pixel(image: Image.Image, point_yx: tuple[float, float]) -> Point:
    """(x, y) in pixels, Pillow's order."""
    return (point_yx[1] * (image.width - 1), point_yx[0] * (image.height - 1))


def _draw_element(image: Image.Image, element: UiElement) -> None:
    unit, is_text = min(image.size) / 100, element.type == "TEXT"
    colour = _TEXT_BOX if is_text else _ICON_BOX
    y, x, height, width = element.box
    first, second = _pixel(image, (y, x)), _pixel(image, (y + height, x + width))
    # Pillow refuses a rectangle with swapped corners, which a box of negative size has.
    (left, right), (top, bottom) = sorted((first[0], second[0])), sorted((first[1], second[1]))
    draw = ImageDraw.Draw(image)
    draw.rectangle((left, top, right, bottom), outline=colour, width=max(1, round(0.5 * unit)))
    name = element.text if is_text else element.type.removeprefix("ICON_").lower().replace("_", " ")
    letters = marks.font(max(8, round(2.6 * unit)))
    name = marks.shorten(" ".join(name.split()), letters, max(right - left, 12 * unit))
    halo = max(1, round(0.4 * unit))
    draw.text((left, top), name, colour, letters, anchor="lb", stroke_width=halo, stroke_fill=marks.WHITE)


def _marked_screen(step: Step, height: int) -> Image.Image:
    """Scaled first and drawn on then, so that marks are sharp."""
    screen = Image.fromarray(step.screenshot)
    width = max(1, round(screen.width * height / screen.height))
    screen = screen.resize((width, height), Image.Resampling.LANCZOS)
    return draw_action(screen, step.action, EXPERT)


def _columns(count: int, cell_width: int) -> int:
    """As many as fit, but no more than makes the rows equally long."""
    fitting = max(1, (_SHEET_WIDTH + _GAP) // (cell_width + _GAP))
    return math.ceil(count / math.ceil(count / fitting))


def _title(episode: Episode, width: int) -> Image.Image:
    large, small = marks.font(26, bold=True), marks.font(16)
    lines = marks.wrap(episode.goal, large, width, lines=3)
    facts = f"{episode.subset} · {len(episode)} steps · episode {episode.id}"
    title = Image.new("RGB", (width, 34 * len(lines) + 26), _SHEET)
    draw = ImageDraw.Draw(title)
    for number, line in enumerate(lines):
        draw.text((0, 34 * number), line, _INK, large)
    draw.text((0, 34 * len(lines) + 2), marks.shorten(facts, small, width), _FAINT, small)
    return title


def _cells(screens: Sequence[Image.Image], captions: Sequence[str]) -> list[Image.Image]:
    """Framed screens, each above its step's number and caption, all of one size."""
    letters, bold = marks.font(16), marks.font(16, bold=True)
    width = max(_LEAST_CELL_WIDTH, *(screen.width for screen in screens))
    indent = bold.getlength(str(len(screens))) + 10
    wrapped = [marks.wrap(caption, letters, width - indent, _CAPTION_LINES) for caption in captions]
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
