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

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from vlm_agent.action_languages.binned import LONG_PRESS_OPENING, SWIPE_OPENING, TAP_OPENING, BinnedLanguage
from vlm_agent.action_languages.language import LanguageSettings
from vlm_agent.action_languages.names import NAME_SEPARATOR, is_name, touched_name
from vlm_agent.episodes import Action, Screen

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
