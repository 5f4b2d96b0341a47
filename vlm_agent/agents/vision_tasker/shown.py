"""What a prompt shows of a screen: its elements, with the names and boxes behind their numbers."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from vlm_agent.agents.llm.prompts import pixels_of
from vlm_agent.agents.read_screens import ScreenReader
from vlm_agent.drawing.marks import numbered
from vlm_agent.episodes import Screen, UiElement
from vlm_agent.errors import UserError
from vlm_agent.geometry import box_at, meets_screen, place_of_box
from vlm_agent.screens.describe import WORDS, describe, describe_part, plain
from vlm_agent.screens.seen import Box, Part
from vlm_agent.sentences.html import screen_html
from vlm_agent.texts.lines import one_line
from vlm_agent.texts.ordinals import called

Shown = Literal["words", "html", "marks"]
PromptLanguage = Literal["en", "zh"]

NAME_CHARACTERS = 80


@dataclass(frozen=True, eq=False)
class ShownScreen:
    """`boxes`, `texts` and `names` of the elements by their number: a text is what stands on the element, a name has
    words for its kind as well. `description`: the screen in words or HTML; empty for marks. `picture`: uint8 (height,
    width, 3), for marks.
    """

    boxes: tuple[Box, ...]
    texts: tuple[str, ...]
    names: tuple[str, ...]
    description: str = ""
    picture: np.ndarray | None = None

    def place(self, number: int) -> tuple[float, float] | None:
        """Where the finger touches the element: its centre, or beside smaller elements on it. None if the screen does
        not have the element."""
        if not 0 <= number < len(self.boxes):
            return None
        return place_of_box(self.boxes, number)

    @cached_property
    def numbers(self) -> list[int]:
        """The numbers of the elements that the screen has, in order."""
        boxes = np.array(self.boxes, float).reshape(-1, 4)
        return np.flatnonzero(meets_screen(boxes)).tolist()

    def called(self, name: str) -> list[int]:
        """The elements of the screen with this text, else those with this name, white space and case ignored; of
        `Install (2)` the second one alone."""
        return called(name, self.named)

    def named(self, name: str) -> list[int]:
        """`called` without ordinals; `name` with entities of HTML or without."""
        wanted = {_folded(name), _folded(html.unescape(name))} - {""}
        for known in (self.texts, self.names):
            if found := [number for number in self.numbers if _folded(known[number]) in wanted]:
                return found
        return []

    def at(self, point_yx: tuple[float, float]) -> int | None:
        return box_at(self.boxes, point_yx)

    def listed(self, numbers: Sequence[int]) -> str:
        return "\n".join(f"{number} {self.names[number]}" for number in numbers)


def show(screen: Screen, shown: Shown, language: PromptLanguage, reader: ScreenReader) -> ShownScreen:
    """Raises UserError for a screen without pixels or elements, where these are shown."""
    if shown == "words":
        understood = reader.read(pixels_of(screen))
        parts = understood.parts
        return ShownScreen(
            tuple(part.box for part in parts),
            tuple(plain(part.text) for part in parts),
            tuple(_part_name(part, language) for part in parts),
            describe(understood, language),
        )
    if screen.elements is None:
        raise UserError(
            f"screen: {shown} needs the elements of screens, and this source has none; use --elements read, which "
            "reads them from the pixels"
        )
    elements = screen.elements
    return ShownScreen(
        tuple(element.box for element in elements),
        tuple(one_line(element.text) for element in elements),
        tuple(_element_name(element) for element in elements),
        screen_html(screen).strip() if shown == "html" else "",
        numbered(pixels_of(screen), elements) if shown == "marks" else None,
    )


def _part_name(part: Part, language: PromptLanguage) -> str:
    """Kind and text, or what describes a part without a text, without its number and state."""
    if text := plain(part.text)[:NAME_CHARACTERS]:
        kind = "" if part.kind == "text" else WORDS[language][part.kind]
        return f'{kind} "{text}"'.strip()
    stateless = Part(part.id, part.kind, part.box, meaning=part.meaning)
    return describe_part(stateless, language).partition(" ")[2] or part.kind


def _element_name(element: UiElement) -> str:
    if text := one_line(element.text)[:NAME_CHARACTERS]:
        return f'"{text}"'
    kind = one_line(element.type).lower().replace("_", " ")
    return f"{kind.removeprefix('icon ')} icon" if kind.startswith("icon ") else kind


def _folded(text: str) -> str:
    return "".join(text.split()).casefold()
