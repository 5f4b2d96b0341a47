"""A tall picture of a page, stitched from pictures that are each scrolled a little further than the one before."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from vlm_agent.devices.long_screen.matching import Scroll
from vlm_agent.episodes import KINDS_WITH_TOUCH, NO_POINT, Action, UiElement

_EDGE = 0.06
"""Fraction of the screen at both ends of the page's visible part where nothing is touched if the page scrolls on."""

_SIDE = 0.02
"""Elements whose sides differ by less, in screen fractions, may be parts of one element."""


@dataclass(frozen=True, eq=False)
class Stitched:
    """A tall picture.

    `pixels`: uint8 (height, width, 3). `offsets`: for each picture the row of `pixels` that shows its first row of
    content. `starts`: for each picture the first row that is taken from it. `bars`: rows of the fixed bars at the top
    and at the bottom, which occur once in `pixels`.
    """

    pixels: np.ndarray
    offsets: tuple[int, ...]
    starts: tuple[int, ...]
    bars: tuple[int, int]

    def source(self, row: float) -> int:
        """The number of the picture from which this row is taken."""
        return int(np.searchsorted(self.starts, row, side="right")) - 1


def join(pictures: Sequence[np.ndarray], scrolls: Sequence[Scroll]) -> Stitched:
    """Pictures are uint8 (height, width, 3), all of one size, in the order of scrolling; `scrolls` between them.

    A seam is in the middle of what two pictures share: far from floating buttons at the bottom and from heads that
    stick to the top, so neither is repeated.
    """
    height = len(pictures[0])
    moved = [scroll for scroll in scrolls if scroll.rows]
    top = min((scroll.top for scroll in moved), default=0)
    bottom = min((scroll.bottom for scroll in moved), default=0)
    offsets = [0, *np.cumsum([scroll.exact for scroll in scrolls]).round().astype(int).tolist()]
    starts = [0]
    for before, offset in pairwise(offsets):
        starts.append((offset + top + before + height - bottom) // 2 if offset > before else starts[-1])
    ends = [*starts[1:], offsets[-1] + height]
    parts = zip(pictures, offsets, starts, ends, strict=True)
    pixels = np.concatenate([picture[start - offset : end - offset] for picture, offset, start, end in parts])
    return Stitched(pixels, tuple(offsets), tuple(starts), (top, bottom))


@dataclass(frozen=True, eq=False)
class TallScreen:
    """A tall picture with its elements, and where the phone's screen shows a row of it.

    `height`: rows of the phone's screen. `activity`: of all pictures.
    """

    stitched: Stitched
    elements: tuple[UiElement, ...] | None
    height: int
    activity: str

    @property
    def rows(self) -> int:
        return len(self.stitched.pixels)

    @property
    def end(self) -> int:
        """The position of the screen at the end of the picture: rows by which the page is scrolled."""
        return self.rows - self.height

    def place(self, row: float, position: int, is_stuck: bool = False) -> float | None:
        """The row of the screen that shows row `row` of the picture if the page is scrolled by `position` rows.

        None if the page must be scrolled first: the row is not on the screen, or it is at the edge of the visible part
        and the page scrolls on. `is_stuck`: it does not.
        """
        top, bottom = self.stitched.bars
        if row < top:
            return row
        if row >= self.rows - bottom:
            return row - self.end
        edge = 0 if is_stuck else self.height * _EDGE
        low = top + (edge if position > 0 else 0)
        high = self.height - bottom - (edge if position < self.end else 0)
        return row - position if low <= row - position < high else None

    def position_for(self, row: float) -> int:
        """The position at which the row is closest to the middle of the visible part."""
        top, bottom = self.stitched.bars
        return min(max(0, round(row - (top + self.height - bottom) / 2)), self.end)

    def on_screen(self, action: Action, place: float) -> Action:
        """A touch of the picture as a touch of the screen at row `place`."""
        (y, x), y_on_screen = action.touch_yx, min(place / self.height, 1.0)
        if not action.is_swipe:
            return replace(action, touch_yx=(y_on_screen, x), lift_yx=(y_on_screen, x) if action.is_tap else NO_POINT)
        rise = (action.lift_yx[0] - y) * self.rows / self.height
        return Action.swipe((y_on_screen, x), (min(max(0.0, y_on_screen + rise), 1.0), action.lift_yx[1]))


def is_on_picture(action: Action) -> bool:
    """Whether the action touches something on the picture. A swipe up or down does not: it scrolls the page."""
    return action.kind in KINDS_WITH_TOUCH and action.direction not in ("up", "down")


def tall_elements(
    stitched: Stitched, height: int, parts: Sequence[tuple[UiElement, ...] | None]
) -> tuple[UiElement, ...] | None:
    """The elements of all pictures in fractions of the tall one; None if one of the pictures has none reported.

    An element counts where its centre is taken from its picture. An element cut off at different places is joined.
    """
    rows = len(stitched.pixels)
    found: list[tuple[int, UiElement]] = []
    for number, (elements, offset) in enumerate(zip(parts, stitched.offsets, strict=True)):
        if elements is None:
            return None
        for element in elements:
            y, x, tall, wide = element.box
            if stitched.source(offset + (y + tall / 2) * height) == number:
                box = ((offset + y * height) / rows, x, tall * height / rows, wide)
                _add(found, number, replace(element, box=box))
    return tuple(element for _, element in found)


def _add(found: list[tuple[int, UiElement]], number: int, element: UiElement) -> None:
    for index, (other, earlier) in enumerate(found):
        if other != number and _are_parts_of_one(earlier, element):
            top = min(earlier.box[0], element.box[0])
            bottom = max(one.box[0] + one.box[2] for one in (earlier, element))
            found[index] = other, replace(earlier, box=(top, earlier.box[1], bottom - top, earlier.box[3]))
            return
    found.append((number, element))


def _are_parts_of_one(first: UiElement, second: UiElement) -> bool:
    (y, x, tall, wide), (other_y, other_x, other_tall, other_wide) = first.box, second.box
    is_alike = first.name == second.name and max(abs(x - other_x), abs(wide - other_wide)) < _SIDE
    return is_alike and y < other_y + other_tall and other_y < y + tall
