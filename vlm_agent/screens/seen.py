"""What is read from the pixels of a screen, the protocols of the models that read it, and the geometry of boxes.

Pixels are uint8 (height, width, 3), RGB. Boxes are (y, x, height, width) in screen fractions, as in `UiElement`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vlm_agent.episodes import UiElement, Widget
from vlm_agent.geometry import box_at, contains

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


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text. `confidence` is in [0, 1]."""

    box: Box
    text: str
    confidence: float = 1.0


@dataclass(frozen=True, slots=True)
class Meaning:
    """One guess of what an icon means: `name` is a key of `icons.MEANINGS`, `score` is in [0, 1]."""

    name: str
    score: float


class TextReader(Protocol):
    """Finds and reads lines of text (OCR)."""

    def read(self, pixels: np.ndarray) -> tuple[Text, ...]:
        """`pixels`: uint8 (height, width, 3), RGB."""
        ...


class WidgetDetector(Protocol):
    """Finds widgets."""

    def detect(self, pixels: np.ndarray) -> tuple[Widget, ...]:
        """`pixels`: uint8 (height, width, 3), RGB."""
        ...


class IconReader(Protocol):
    """Guesses the meaning of icons."""

    def read(self, crops: Sequence[np.ndarray]) -> list[tuple[Meaning, ...]]:
        """For each crop, uint8 (height, width, 3), RGB, of any size, the guesses, best first."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """One thing on a screen that a planner can name: a widget, with the texts that belong to it, or a text alone.

    `id`: its number on this screen, from 0, in the order of the description. `kind`: one of `WIDGET_KINDS`, or `text`.
    `text`: its own text or the texts matched to it; `meaning`: a key of `icons.MEANINGS`; both empty if unknown. `on`:
    as in `Widget`. `selected`: whether it is the active tab of a row of tabs.
    """

    id: int
    kind: str
    box: Box
    text: str = ""
    meaning: str = ""
    on: bool | None = None
    selected: bool = False

    @property
    def element(self) -> UiElement:
        """The same part for code that works on a phone's own elements."""
        kind = "TEXT" if self.kind == "text" else f"ICON_{(self.meaning or self.kind).upper()}"
        return UiElement(self.box, self.text, kind)


@dataclass(frozen=True, slots=True)
class Block:
    """A group of parts that belong together (algorithm 1). `title`: its caption, empty without one."""

    box: Box
    parts: tuple[int, ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Understood:
    """Everything read from one screen of `size` (height, width) pixels.

    `texts` and `widgets` are what the readers returned; `parts` is what became of them, ordered by id; every part is in
    exactly one of `blocks`, which are ordered from top to bottom and from left to right. `unsure`: texts below the
    reader's confidence, which are in no part.
    """

    size: tuple[int, int]
    texts: tuple[Text, ...]
    widgets: tuple[Widget, ...]
    parts: tuple[Part, ...]
    blocks: tuple[Block, ...]
    unsure: tuple[Text, ...] = ()

    @property
    def elements(self) -> tuple[UiElement, ...]:
        """The parts as elements; index i is the part with id i."""
        return tuple(part.element for part in self.parts)

    @property
    def label_elements(self) -> tuple[UiElement, ...]:
        """The texts that name a part beside them, such as the label of a switch or the name under a picture, each with
        its own box. A touch on them may do something else than one on the part."""
        return tuple(
            UiElement(text.box, text.text, "TEXT")
            for text in self.texts
            if not any(text.text in part.text and contains(part.box, centre(text.box)) for part in self.parts)
        )

    @property
    def unsure_elements(self) -> tuple[UiElement, ...]:
        """The unsure texts, each with the box of the smallest part that its centre is on, else its own."""
        boxes = [part.box for part in self.parts]
        on = [box_at(boxes, centre(text.box)) for text in self.unsure]
        return tuple(
            UiElement(text.box if number is None else boxes[number], text.text, "TEXT")
            for text, number in zip(self.unsure, on, strict=True)
        )
