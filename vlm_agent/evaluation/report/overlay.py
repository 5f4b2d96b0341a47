"""Actions and elements of a screen as SVG, which remains sharp over a thumbnail.

Coordinates are (x, y) in a view box of width `VIEW_WIDTH`. They are integers, so that the marks of a screen take a few
hundred bytes: a report has thousands of screens.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vlm_agent.drawing.actions import describe
from vlm_agent.episodes import Action, ActionKind, UiElement

VIEW_WIDTH = 360
_RADIUS, _RADIUS_OF_NEXT = 13, 5
"""Radius of the first tap's ring, and how much wider each next one is: taps on one point are all visible."""

_HEAD, _LETTERS = 18, 26


@dataclass(frozen=True)
class Mark:
    """`name` is the CSS class. Gestures have a `path`; other actions have `words` at height `y`."""

    name: str
    path: str = ""
    words: str = ""
    y: int = 0


def marks(actions: Sequence[tuple[str, Action | None]], height: int) -> Iterator[Mark]:
    """A mark for each (class name, action) whose action is not None, in a view box of this `height`."""
    for row, (name, action) in enumerate(actions):
        if action is None:
            continue
        if action.kind is not ActionKind.DUAL_POINT:
            words = describe(action)
            short = words if len(words) <= _LETTERS else words[: _LETTERS - 1] + "…"
            yield Mark(name, words=short, y=height - 40 - 32 * row)
        elif action.is_tap:
            yield Mark(name, path=_tap(*_at(action.touch_yx, height), _RADIUS + _RADIUS_OF_NEXT * row))
        else:
            yield Mark(name, path=_arrow(_at(action.touch_yx, height), _at(action.lift_yx, height)))


def boxes(elements: Sequence[UiElement], height: int) -> tuple[str, str]:
    """All text elements as one path, and all icons as another."""
    paths = {True: "", False: ""}
    for element in elements:
        y, x, box_height, box_width = element.box
        (left, top), (right, bottom) = _at((y, x), height), _at((y + box_height, x + box_width), height)
        paths[element.type == "TEXT"] += f"M{left} {top}h{right - left}v{bottom - top}h{left - right}z"
    return paths[True], paths[False]


def _at(point_yx: tuple[float, float], height: int) -> tuple[int, int]:
    return round(point_yx[1] * VIEW_WIDTH), round(point_yx[0] * height)


def _tap(x: int, y: int, radius: int) -> str:
    """A cross in a ring."""
    ring = f"M{x - radius} {y}a{radius} {radius} 0 1 0 {2 * radius} 0a{radius} {radius} 0 1 0 {-2 * radius} 0"
    return f"{ring}M{x - 6} {y}h12M{x} {y - 6}v12"


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    """An arrow from a small ring at `start`."""
    (x, y), (to_x, to_y) = start, end
    angle = math.atan2(to_y - y, to_x - x)
    sides = [
        (round(to_x - _HEAD * math.cos(angle + turn)), round(to_y - _HEAD * math.sin(angle + turn)))
        for turn in (0.5, -0.5)
    ]
    (left_x, left_y), (right_x, right_y) = sides
    ring = f"M{x - 5} {y}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0"
    return f"{ring}M{x} {y}L{to_x} {to_y}M{left_x} {left_y}L{to_x} {to_y}L{right_x} {right_y}"
