"""The binned language in which a tap says first what it touches.

    Wifi=tap at 30 12        everything else as `BinnedLanguage` has it

The name is that of the smallest annotated element under the finger. So the choice of an element and the search for its
place are two steps for a model, the second of which is what pretraining on elements teaches (`sentences/elements.py`
writes places the same way), and whoever reads an answer sees what was meant. A tap on nothing, or on something whose
name is too long to be said, is written without.

With `sought` a swipe says first what it is to bring, where its caller knows (`sentences/sought.py`):

    Wifi=swipe from 70 48 to 30 48

Whether to tap or to swipe is then asked of a model that has already said what it looks for, and so is the same search
as for a place, that finds nothing. Without a name, it has to know before it has looked.
"""

import re
import unicodedata
from dataclasses import dataclass

from vlm_agent.action_languages.binned import SWIPE_OPENING, TAP_OPENING, TYPE_OPENING, BinnedLanguage
from vlm_agent.episodes import Action, Step, UiElement, element_at

NAMES = "="
"""Between a name and the place that has it."""

MAX_NAME_CHARACTERS = 32
_A_TAP = TAP_OPENING + "0 0"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def is_name(text: str) -> bool:
    """Whether a tap can be told by it: one short line that could be nothing else."""
    return (
        0 < len(text) <= MAX_NAME_CHARACTERS
        and NAMES not in text
        and not text.startswith(TYPE_OPENING)
        and not _CONTROL.search(text)
    )


@dataclass(frozen=True)
class NamedLanguage(BinnedLanguage):
    """The codec; without a step, or on a screen without annotations, it writes what `BinnedLanguage` writes."""

    sought: bool = False

    @property
    def instructions(self) -> str:
        told = f"\nBefore a tap say what you touch, by its text, and {NAMES!r}: Settings{NAMES}tap at Y X"
        if self.sought:
            told += f"\nBefore a swipe say what it is to bring: Settings{NAMES}swipe from Y X to Y X"
        return super().instructions + told

    def render(self, action: Action, step: Step | None = None, sought: str | None = None) -> str:
        text = super().render(action, step)
        if action.is_tap:
            sought = None if step is None else touched_name(action, step)
        elif not (self.sought and action.is_swipe):
            sought = None
        return text if sought is None else sought + NAMES + text

    def parse(self, text: str, step: Step | None = None) -> Action | None:
        name, found, gesture = text.partition(NAMES)
        if not found or not is_name(name):
            return super().parse(text)
        action = super().parse(gesture)
        return action if action is not None and (action.is_tap or (self.sought and action.is_swipe)) else None

    def ending(self, text: str) -> str | None:
        plain = super().ending(text)
        if plain is not None:
            return plain
        name, found, gesture = text.partition(NAMES)
        if not is_name(name):
            return None
        if not found:
            return NAMES + _A_TAP
        if not gesture:
            return _A_TAP
        openings = (TAP_OPENING, SWIPE_OPENING) if self.sought else (TAP_OPENING,)
        named = any(opening.startswith(gesture[: len(opening)]) for opening in openings)
        return super().ending(gesture) if named else None


def touched_name(action: Action, step: Step) -> str | None:
    """What a tap on the screen is told by; None where nothing there can be told."""
    element = element_at(step.elements, action.touch_yx)
    return None if element is None else spoken_name(element)


def spoken_name(element: UiElement) -> str | None:
    """In the one spelling that every tokenizer keeps: what is on a screen was often read by a machine."""
    name = unicodedata.normalize("NFC", " ".join(element.name.split()))
    return name if is_name(name) else None
