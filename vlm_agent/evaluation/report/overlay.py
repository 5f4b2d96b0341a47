"""Actions and elements of a screen as SVG, which remains sharp over a thumbnail.

Coordinates are (x, y) in a view box of width `VIEW_WIDTH`. They are integers, so that the marks of a screen take a few
hundred bytes: a report has thousands of screens.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vlm_agent.drawing.actions import describe, framed_element
from vlm_agent.episodes import Action, ActionKind, UiElement

VIEW_WIDTH = 360
_RADIUS, _GAP, _NEXT = 22, 6, 8
"""Radius of the first tap's ring, distance of its frame from the element, and how much wider those of each next tap on
the same element are: all of them are visible. What is inside stays free of marks."""

_TICK = 9
"""Length of the ticks above and left of a frame, which show where the point is: the label of an icon is below it."""

_HEAD, _LETTERS, _LINE = 18, 26, 32


@dataclass(frozen=True)
class Mark:
    """`name` is the CSS class. Gestures have a `path`; other actions have `words` at height `y`."""

    name: str
    path: str = ""
    words: str = ""
    y: int = 0


def marks(
    actions: Sequence[tuple[str, Action | None]], height: int, elements: Sequence[UiElement] = ()
) -> Iterator[Mark]:
    """A mark for each (class name, action) whose action is not None, in a view box of this `height`.

    A tap is a frame around the one of `elements` that it touches, or a ring (`framed_element`); a long press has words
    as well. Words are at the bottom, or at the top where something at the bottom is touched.
    """
    lowest = max((_at(one.touch_yx, height)[1] for _, one in actions if one is not None and one.is_touch), default=0)
    below = lowest < height - _LINE * (len(actions) + 1)
    framed: list[UiElement | None] = []
    for row, (name, action) in enumerate(actions):
        if action is None:
            continue
        if action.kind is not ActionKind.DUAL_POINT:
            words = describe(action)
            short = words if len(words) <= _LETTERS else words[: _LETTERS - 1] + "…"
            yield Mark(name, words=short, y=height - 40 - _LINE * row if below else 60 + _LINE * row)
        if action.is_swipe:
            yield Mark(name, path=_arrow(_at(action.touch_yx, height), _at(action.lift_yx, height)))
        elif action.is_touch:
            element = framed_element(action, elements)
            yield Mark(name, path=_touch(action, element, height, _NEXT * framed.count(element)))
            framed.append(element)


def boxes(elements: Sequence[UiElement], height: int) -> tuple[str, str]:
    """All text elements as one path, and all icons as another."""
    paths = {True: "", False: ""}
    for element in elements:
        y, x, box_height, box_width = element.box
        (left, top), (right, bottom) = _at((y, x), height), _at((y + box_height, x + box_width), height)
        paths[element.type == "TEXT"] += f"M{left} {top}h{right - left}v{bottom - top}h{left - right}z"
    return paths[True], paths[False]


def _at(point_yx: tuple[float, float], height: int) -> tuple[int, int]:
    y, x = (min(max(value, -9.0), 9.0) for value in point_yx)  # an answer may name any finite number
    return round(x * VIEW_WIDTH), round(y * height)


def _touch(action: Action, element: UiElement | None, height: int, wider: int) -> str:
    """A frame with ticks around the element, or a ring; `wider`: than those of the first action there."""
    x, y = _at(action.touch_yx, height)
    if element is None:
        radius = _RADIUS + wider
        return f"M{x - radius} {y}a{radius} {radius} 0 1 0 {2 * radius} 0a{radius} {radius} 0 1 0 {-2 * radius} 0"
    box_y, box_x, box_height, box_width = element.box
    first, second = _at((box_y, box_x), height), _at((box_y + box_height, box_x + box_width), height)
    (left, right), (top, bottom) = sorted((first[0], second[0])), sorted((first[1], second[1]))
    gap = _GAP + wider
    left, top, right, bottom = left - gap, top - gap, right + gap, bottom + gap
    ticks = f"M{x} {top}v{-_TICK}M{left} {y}h{-_TICK}"
    return f"M{left} {top}h{right - left}v{bottom - top}h{left - right}z{ticks}"


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    """An arrow from a small ring at `start`."""
    (x, y), (to_x, to_y) = start, end
    angle = math.atan2(to_y - y, to_x - x)
    (left_x, left_y), (right_x, right_y) = (
        (round(to_x - _HEAD * math.cos(angle + turn)), round(to_y - _HEAD * math.sin(angle + turn)))
        for turn in (0.5, -0.5)
    )
    ring = f"M{x - 5} {y}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0"
    return f"{ring}M{x} {y}L{to_x} {to_y}M{left_x} {left_y}L{to_x} {to_y}L{right_x} {right_y}"
