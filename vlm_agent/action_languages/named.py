"""The named language: as the binned one, with the name of the touched element before a tap or long press.

    Wifi=tap at 30 12        every other action as in `BinnedLanguage`

The name is that of the smallest annotated element under the touch point; it is omitted if no element is touched or the
name is not usable (`is_name`). A model then first selects an element and then localises it, and pretraining on elements
teaches the localisation (`sentences/elements.py` writes coordinates the same way). The text also shows which element
the model selected.

With `name_swipe_targets` a swipe begins with the name of the element that it should bring into view, if the caller
knows it (`sentences/trajectory.py`):

    Wifi=swipe from 70 48 to 30 48

The model then decides between tap and swipe after it has named the element that it looks for.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from vlm_agent.action_languages.binned import (
    LONG_PRESS_OPENING,
    QUOTED_OPENINGS,
    SWIPE_OPENING,
    TAP_OPENING,
    BinnedLanguage,
)
from vlm_agent.action_languages.language import LanguageSettings
from vlm_agent.episodes import Action, Screen, UiElement, element_at
from vlm_agent.texts.folding import normalized

NAME_SEPARATOR = "="
"""The separator between a name and a gesture."""

MAX_NAME_CHARACTERS = 32
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def is_name(text: str) -> bool:
    """Whether `text` can be written as a name before a gesture.

    It must be 1 to `MAX_NAME_CHARACTERS` characters without the separator and control characters, and must not begin
    like an action with a quoted text.
    """
    return (
        0 < len(text) <= MAX_NAME_CHARACTERS
        and NAME_SEPARATOR not in text
        and not text.startswith(QUOTED_OPENINGS)
        and not _CONTROL.search(text)
    )


def touched_name(action: Action, screen: Screen) -> str | None:
    """The name of the smallest element under the action's touch point; None without an element or a usable name."""
    element = element_at(screen.elements or (), action.touch_yx)
    return None if element is None else spoken_name(element)


def spoken_name(element: UiElement) -> str | None:
    """The element's name in Unicode NFC with single spaces; None if it is not usable (`is_name`).

    Names often come from OCR. The normalisation makes tokenizers reproduce them.
    """
    name = normalized("NFC", " ".join(element.name.split()))
    return name if is_name(name) else None


_A_TAP = TAP_OPENING + "0 0"


@dataclass(frozen=True)
class NamedLanguage(BinnedLanguage):
    """The codec. Without a screen, or on a screen without annotations, its text equals that of `BinnedLanguage`."""

    name_swipe_targets: bool = False

    @property
    def instructions(self) -> str:
        example = f"Settings{NAME_SEPARATOR}"
        names = f"\nBefore a tap say what you touch, by its text, and {NAME_SEPARATOR!r}: {example}tap at Y X"
        if self.name_swipe_targets:
            names += f"\nBefore a swipe say what it is to bring: {example}swipe from Y X to Y X"
        if self.all_action_kinds:
            names += f"\nA long press too: {example}long press at Y X"
        return super().instructions + names

    def encode(self, action: Action, screen: Screen | None = None, swipe_target: str | None = None) -> str:
        text, name = super().encode(action), None
        if action.is_touch:
            name = None if screen is None else touched_name(action, screen)
        elif self.name_swipe_targets and action.is_swipe:
            name = swipe_target
        return text if name is None else name + NAME_SEPARATOR + text

    def decode(self, text: str, screen: Screen | None = None) -> Action | None:
        name, separator, gesture = text.partition(NAME_SEPARATOR)
        if not separator or not is_name(name):
            return super().decode(text)
        action = super().decode(gesture)
        may_be_named = action is not None and (action.is_touch or (self.name_swipe_targets and action.is_swipe))
        return action if may_be_named else None

    def ending(self, text: str) -> str | None:
        plain = super().ending(text)
        if plain is not None:
            return plain
        name, separator, gesture = text.partition(NAME_SEPARATOR)
        if not is_name(name):
            return None
        if not separator:
            return NAME_SEPARATOR + _A_TAP
        if not gesture:
            return _A_TAP
        swipes = (SWIPE_OPENING,) if self.name_swipe_targets else ()
        openings = (TAP_OPENING, LONG_PRESS_OPENING, *swipes)
        is_gesture = any(opening.startswith(gesture[: len(opening)]) for opening in openings)
        return super().ending(gesture) if is_gesture else None


class NamedSettings(LanguageSettings):
    """`bins`, `all_action_kinds`: see `BinnedSettings`. `name_swipe_targets`: whether a swipe begins with the name of
    the element that it should bring into view."""

    name: Literal["named"] = "named"
    bins: Annotated[int, Field(ge=2)] = 100
    name_swipe_targets: bool = False
    all_action_kinds: bool = False

    def build(self) -> NamedLanguage:
        return NamedLanguage(self.bins, self.all_action_kinds, self.name_swipe_targets)
