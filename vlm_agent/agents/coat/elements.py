"""The elements of a screen as a model sees them: numbered from 0, in rows from top to bottom."""

import json
from collections.abc import Sequence
from dataclasses import replace

from vlm_agent.episodes import Screen, UiElement
from vlm_agent.texts.lines import one_line

_UNITS = 1000


def with_rows(screen: Screen) -> Screen:
    """The screen with its elements in rows. Their places in the tuple are the numbers that a model reads and answers
    with."""
    return screen if screen.elements is None else replace(screen, elements=in_rows(screen.elements))


def in_rows(elements: Sequence[UiElement]) -> tuple[UiElement, ...]:
    """Elements from top to bottom, and from left to right within a row.

    A row begins with the highest element that is left; it holds those whose centre lies above that element's centre or
    within its box.
    """
    left = sorted(elements, key=lambda element: (element.centre_yx, element.box))
    rows: list[UiElement] = []
    while left:
        first = left[0]
        bottom = first.box[0] + max(first.box[2], 0.0)
        row = [element for element in left if element.centre_yx[0] <= max(bottom, first.centre_yx[0])]
        rows += sorted(row, key=lambda element: (element.box[1], element.box))
        left = left[len(row) :]
    return tuple(rows)


def listed(elements: Sequence[UiElement]) -> str:
    """A line for each element: number, text or kind of icon, and box (x1, y1, x2, y2) in thousandths of the screen."""
    return "\n".join(f"{number}: {_name(element)} {_box(element)}" for number, element in enumerate(elements))


def _name(element: UiElement) -> str:
    """On one line, whatever the screen shows."""
    if element.text:
        return json.dumps(element.text, ensure_ascii=False)
    kind = one_line(element.type)
    return kind.removeprefix("ICON_").lower().replace("_", " ") + " icon" * kind.startswith("ICON_")


def _box(element: UiElement) -> list[int]:
    y, x, height, width = element.box
    return [round(min(max(side, 0.0), 1.0) * _UNITS) for side in (x, y, x + width, y + height)]
