"""The binned language in which a tap says first what it touches.

    Wifi=tap at 30 12        everything else as `BinnedLanguage` has it

The name is that of the smallest annotated element under the finger. So the choice of an element and the search for its
place are two steps for a model, the second of which is what pretraining on elements teaches (`sentences/elements.py`
writes places the same way), and whoever reads an answer sees what was meant. A tap on nothing, or on something whose
name is too long to be said, is written without.
"""

import re
import unicodedata
from dataclasses import dataclass

from vlm_agent.action_languages.binned import TAP_OPENING, TYPE_OPENING, BinnedLanguage
from vlm_agent.episodes import Action, Step, element_at

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

    @property
    def instructions(self) -> str:
        return super().instructions + (
            f"\nBefore a tap say what you touch, by its text, and {NAMES!r}: Settings{NAMES}tap at Y X"
        )

    def render(self, action: Action, step: Step | None = None) -> str:
        text = super().render(action, step)
        name = None if step is None or not action.is_tap else _name_under(action, step)
        return text if name is None else name + NAMES + text

    def parse(self, text: str, step: Step | None = None) -> Action | None:
        name, found, place = text.partition(NAMES)
        if not found or not is_name(name):
            return super().parse(text)
        action = super().parse(place)
        return action if action is not None and action.is_tap else None

    def ending(self, text: str) -> str | None:
        plain = super().ending(text)
        if plain is not None:
            return plain
        name, found, place = text.partition(NAMES)
        if not is_name(name):
            return None
        if not found:
            return NAMES + _A_TAP
        if not place:
            return _A_TAP
        return super().ending(place) if _A_TAP.startswith(place[: len(TAP_OPENING)]) else None


def _name_under(action: Action, step: Step) -> str | None:
    element = element_at(step.elements, action.touch_yx)
    # In the one spelling that every tokenizer keeps: what is on a screen was often read by a machine.
    name = "" if element is None else unicodedata.normalize("NFC", " ".join(element.name.split()))
    return name if is_name(name) else None
