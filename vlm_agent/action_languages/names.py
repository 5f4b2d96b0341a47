"""Names of elements as they are written in text: by languages that name what an action touches, and in lessons about
elements."""

import re
import unicodedata

from vlm_agent.action_languages.binned import QUOTED_OPENINGS
from vlm_agent.episodes import Action, Screen, UiElement, element_at

NAME_SEPARATOR = "="
"""Between a name and the place that it names."""

MAX_NAME_CHARACTERS = 32
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def is_name(text: str) -> bool:
    """Whether a gesture can begin with `text`: one short line that no other action begins with."""
    return (
        0 < len(text) <= MAX_NAME_CHARACTERS
        and NAME_SEPARATOR not in text
        and not text.startswith(QUOTED_OPENINGS)
        and not _CONTROL.search(text)
    )


def touched_name(action: Action, screen: Screen) -> str | None:
    """The name of the element under the action's touch point; None without an element or a usable name."""
    element = element_at(screen.elements or (), action.touch_yx)
    return None if element is None else spoken_name(element)


def spoken_name(element: UiElement) -> str | None:
    """The element's name in Unicode NFC and with single spaces, which every tokenizer keeps; None if it is not usable.

    Names often come from OCR.
    """
    name = unicodedata.normalize("NFC", " ".join(element.name.split()))
    return name if is_name(name) else None
