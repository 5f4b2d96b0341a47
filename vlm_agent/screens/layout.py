"""Boxes of a screen, rectangles in its widths, and the order in which a screen is read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Box = tuple[float, float, float, float]
"""(y, x, height, width) in screen fractions, as in `UiElement`."""

SAME_ROW = 0.5
"""Two boxes are in one row if they overlap vertically by this share of the smaller height."""

TALLER = 4.0
"""A box that is taller than another by this factor is a row of its own."""


def area(box: Box) -> float:
    return max(0.0, box[2]) * max(0.0, box[3])


def centre(box: Box) -> tuple[float, float]:
    return box[0] + box[2] / 2, box[1] + box[3] / 2


def shared(first: Box, second: Box) -> float:
    """The area that both cover."""
    high = min(first[0] + first[2], second[0] + second[2]) - max(first[0], second[0])
    wide = min(first[1] + first[3], second[1] + second[3]) - max(first[1], second[1])
    return max(0.0, high) * max(0.0, wide)


def hull(boxes: Iterable[Box]) -> Box:
    """The smallest box around at least one box."""
    tops, lefts, bottoms, rights = zip(*((y, x, y + high, x + wide) for y, x, high, wide in boxes), strict=True)
    return (min(tops), min(lefts), max(bottoms) - min(tops), max(rights) - min(lefts))


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A box in widths of the screen."""

    top: float
    left: float
    bottom: float
    right: float

    @classmethod
    def of(cls, box: Box, height: float) -> "Rectangle":
        """`height` is that of the screen, in its widths."""
        y, x, high, wide = box
        return cls(y * height, x, (y + high) * height, x + wide)

    @property
    def centre(self) -> tuple[float, float]:
        return (self.top + self.bottom) / 2, (self.left + self.right) / 2

    @property
    def height(self) -> float:
        return self.bottom - self.top

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def area(self) -> float:
        return self.height * self.width

    def holds(self, point: tuple[float, float]) -> bool:
        return self.top <= point[0] <= self.bottom and self.left <= point[1] <= self.right

    def overlap(self, other: "Rectangle") -> float:
        """Intersection over union, 1 for equal boxes without an area."""
        union = self.area + other.area - self.shared(other)
        return self.shared(other) / union if union else float(self == other)

    def shared(self, other: "Rectangle") -> float:
        """The area that both cover."""
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        wide = min(self.right, other.right) - max(self.left, other.left)
        return max(high, 0.0) * max(wide, 0.0)


def reading_order(boxes: Sequence[Box]) -> list[int]:
    """Indices of `boxes` in reading order. A row is what overlaps vertically with its topmost box."""
    rows: list[list[int]] = []
    for index in sorted(range(len(boxes)), key=lambda index: (*boxes[index], index)):
        row = next((row for row in reversed(rows) if _is_same_row(boxes[row[0]], boxes[index])), None)
        if row is None:
            rows.append([index])
        else:
            row.append(index)
    return [index for row in rows for index in sorted(row, key=lambda index: (boxes[index][1], boxes[index][0], index))]


def _is_same_row(first: Box, second: Box) -> bool:
    smaller, larger = sorted((first[2], second[2]))
    overlap = min(first[0] + first[2], second[0] + second[2]) - max(first[0], second[0])
    return larger <= TALLER * smaller and overlap >= SAME_ROW * smaller and overlap > 0
