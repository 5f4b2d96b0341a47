"""What is read from the pixels of a screen, and the protocols of the models that read it.

Pixels are uint8 (height, width, 3), RGB. Boxes are (y, x, height, width) in screen fractions, as in `UiElement`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vlm_agent.episodes import UiElement, Widget
from vlm_agent.geometry import box_at, contains
from vlm_agent.screens.layout import Box, centre


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
        labels = (text for text in self.texts if not any(_shows(part, text) for part in self.parts))
        return tuple(UiElement(text.box, text.text, "TEXT") for text in labels)

    @property
    def unsure_elements(self) -> tuple[UiElement, ...]:
        """The unsure texts, each with the box of the smallest part that its centre is on, else its own."""
        boxes = [part.box for part in self.parts]
        on = [box_at(boxes, centre(text.box)) for text in self.unsure]
        return tuple(
            UiElement(text.box if number is None else boxes[number], text.text, "TEXT")
            for text, number in zip(self.unsure, on, strict=True)
        )


def _shows(part: Part, text: Text) -> bool:
    return text.text in part.text and contains(part.box, centre(text.box))
