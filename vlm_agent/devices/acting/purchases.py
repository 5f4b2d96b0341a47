"""Detects actions that could spend money, by the words on the screen.

This filter gives no guarantee. It reads the activity, the texts on the screen and the typed text, and the goal where no
text is known. It misses buttons without text for other goals, prices alone, words that purchases.yaml lacks, and other
languages.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from vlm_agent.episodes import KINDS_WITH_TOUCH, WIDGET_KINDS, Action, ActionKind, UiElement, element_at
from vlm_agent.geometry import distance
from vlm_agent.texts.folding import WordList, read_word_lists
from vlm_agent.texts.secrets import has_card

ACTIVITIES = ("billing", "buyflow", "checkout", "payment", "paypal", "purchase", "wallet")
"""Parts of an activity's name. On such a screen every action could spend money."""

_LISTS = read_word_lists(Path(__file__).with_suffix(".yaml"))

_FOLLOWED = ("buy", "donate", "order", "pay", "purchase", "rent", "reserve", "subscribe", "transfer", "upgrade")
_FOLLOWERS = ("and", "by", "for", "here", "it", "later", "now", "the", "this", "to", "today", "using", "with", "your")

_BUTTONS = (
    *(f"{button} {word}" for button in _FOLLOWED for word in _FOLLOWERS),  # found without their space, too
    *_LISTS["buttons"],
)

NEAR = 0.02
"""The margin around an element in which a touch counts as a touch of it, in screen fractions.

A button is larger than its text.
"""

KINDS_IN_PLACE = (ActionKind.WAIT, ActionKind.ANSWER)
"""Action kinds after which the same field has the focus, with the same text."""

_HARMLESS = (
    ActionKind.PRESS_BACK,
    ActionKind.PRESS_HOME,
    ActionKind.STATUS_TASK_COMPLETE,
    ActionKind.STATUS_TASK_IMPOSSIBLE,
    ActionKind.RECENTS,
    *KINDS_IN_PLACE,
)
"""Action kinds that do not touch or fill in anything on the screen."""

_UNNAMED_TYPES = frozenset({"TEXT", *(f"ICON_{kind.upper()}" for kind in WIDGET_KINDS)})
"""The types of elements that say nothing of what they do."""

_WORDS = re.compile(r"[\w']+|[$£€]")
_SCREEN_WORDS = WordList(_LISTS["screens"], _LISTS["unspaced_screens"], _WORDS)
_BUTTON_WORDS = WordList(_BUTTONS, _LISTS["unspaced_buttons"], _WORDS)


def purchase_reason(
    action: Action, goal: str, activity: str, elements: Sequence[UiElement] | None, are_read: bool = False
) -> str | None:
    """Why the action could spend money; None if nothing indicates it.

    `elements` is None or empty if the phone reports none. Then every action could spend money if the goal contains a
    word of either list; otherwise such a goal counts for touches of an element without a name. `are_read`:
    the elements were read from pixels, where scripts that the reader does not know leave no element; such a goal then
    counts for every touch outside of all elements, too.
    """
    if action.kind in _HARMLESS:
        return None
    if (word := next((word for word in ACTIVITIES if word in activity.casefold()), None)) is not None:
        return f"{activity} has {word!r} in its name"
    if has_card(action.text):
        return "the typed text looks like a card number"
    if not elements:
        return _reason_by_goal(goal, "the phone does not report the texts on its screen")
    reason = _reason_by_elements(action, elements)
    if reason is None and _touches_unnamed(action, elements, are_read):
        reason = _reason_by_goal(goal, "what the action touches has no text that could be read")
    return reason


def _reason_by_goal(goal: str, why: str) -> str | None:
    word = _BUTTON_WORDS.find(goal) or _SCREEN_WORDS.find(goal)
    return None if word is None else f"the goal mentions {word!r}, and {why}"


def _touches_unnamed(action: Action, elements: Sequence[UiElement], are_read: bool) -> bool:
    # A swipe up or down scrolls: it may begin anywhere. One sideways may be a slider.
    if action.kind not in KINDS_WITH_TOUCH or (action.is_swipe and action.direction in ("up", "down")):
        return False
    touched = element_at(elements, action.touch_yx)
    if touched is None:
        return are_read
    return not touched.text.strip() and touched.type in _UNNAMED_TYPES


def _reason_by_elements(action: Action, elements: Sequence[UiElement]) -> str | None:
    # A swipe counts by where it begins: "Slide to pay". A page that is scrolled by such a button asks, too.
    touches = action.kind in KINDS_WITH_TOUCH
    for element in elements:
        if _SCREEN_WORDS.find(element.text) is not None:
            return f"the screen shows {element.text[:80]!r}"
        is_touched = touches and distance(element.box, action.touch_yx) <= NEAR
        if is_touched and _BUTTON_WORDS.find(element.text) is not None:
            return f"the touched element is {element.text[:80]!r}"
    return None
