"""Names of elements in text: in action languages that name touched elements, and in sentences about elements."""

import re

from vlm_agent.action_languages.binned import QUOTED_OPENINGS
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
