"""The expert's plan at each step, in words: what remains to be done from this screen on.

    open Clock            the first line is the immediate step, as this screen needs it
    tap Alarm             the others are the next intents of the expert, in the words of its script
    tap New alarm
    tap 7

An intent is in a plan before the screen on which it is pursued, so its line names nothing that only that screen shows:
a name that depends on the phone's contents (a person, an item, a text) is written only if its words are in the goal or
on a screen that was shown by then; otherwise the line has a general word ("remove the item"). A text that a note or an
alarm holds is general until that was read. Names of the software (apps, tabs, buttons, settings) are always written.

Dialogs, the swipes that bring a target into view, whether suggestions are shown, and the end `impossible` are in no
plan before their screen is. `docs/data.md` says what a plan knows beyond its screens.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vlm_agent.episodes import Step, element_at
from vlm_agent.geometry import OPPOSITE
from vlm_agent.simulator.thoughts.reasons import Reason, name_of

if TYPE_CHECKING:
    from vlm_agent.simulator.expert import Intent

MAX_LINES = 4
"""Lines of a plan: the immediate step, and up to three more."""

CLOSE, QUICK_SETTINGS = "close this", "open quick settings"

_SOFTWARE = frozenset({"app", "tab", "quick", "popup"})
"""Kinds of targets whose names do not depend on the phone's contents, like those of keys without a kind."""

_OPENED = frozenset(
    ("album", "app", "event", "letter", "note", "person", "place", "product", "show", "site", "story", "talk")
)
_DONE = frozenset({"add", "remove", "star", "update"})
"""Kinds of targets with a verb of their own: those that open a page, and those that do what their kind says."""

_GENERAL = {
    **dict.fromkeys(("add", "product", "remove"), "item"),
    **dict.fromkeys(("star", "talk"), "person"),
    **dict.fromkeys(("show", "update"), "app"),
    "letter": "mail",
    "suggest": "text",
}
"""Kind of a target → the word for it where its name is not known, if that is not the kind itself."""

_LABELS = {"ok": "OK", "shop_search": "Search"}
"""Key of a target → what its button is called, if that is not the key itself."""

_PRESSES = {"home": "go home", "back": "go back", "enter": "enter"}
SEARCH = "search"
"""What sends a typed text, while it is not known whether a suggestion is shown to tap on."""

_READ = frozenset({"alarm", "note"})
"""Kinds of targets that hold a text to type."""

_FREE = frozenset({"in"})
"""Words of a text to type that carry no name."""


def with_remaining(
    steps: Sequence[Step], reasons: Sequence[Reason], pursued: Sequence[int], intents: Sequence["Intent"], goal: str
) -> tuple[Step, ...]:
    """The steps with their notes `plan` and `step`.

    `reasons`: why each action is performed. `pursued`: for each step, the number of the intent that it belongs to.
    `intents`: all that the expert followed, up to `complete`; after `impossible`, those that it could not follow.
    """
    of_goal = frozenset(_words(goal) | _FREE)
    known = set(of_goal)
    planned = []
    for step, reason, number in zip(steps, reasons, pursued, strict=True):
        known |= {word for element in step.elements for word in _words(element.text)}
        words = _Words(intents, of_goal, frozenset(known))
        now = words.now(step, reason, number)
        lines = [now]
        for line in words.later(reason, number):
            if line != lines[-1]:
                lines.append(line)
        planned.append(replace(step, notes={**step.notes, "plan": "\n".join(lines[:MAX_LINES]), "step": now}))
    return tuple(planned)


class _Words:
    """The lines of a plan at one step. `known`: the words of the goal and of the screens until this step."""

    def __init__(self, intents: Sequence["Intent"], of_goal: frozenset[str], known: frozenset[str]) -> None:
        self._intents, self._of_goal, self._known = intents, of_goal, known

    def now(self, step: Step, reason: Reason, number: int) -> str:
        """The immediate step, for an action of the intent with this number."""
        intent = self._intents[number]
        if reason.cause == "in the way":
            return CLOSE
        if reason.cause == "hidden" and intent.what != "shade":
            name = intent.wants if intent.verb == "swipe" else self._name(intent.what)
            look = f"look {OPPOSITE[step.action.direction or '']}"
            is_sayable = name and (intent.verb != "swipe" or self._is_known(name))
            return f"{look} for {name}" if is_sayable else look
        if intent.verb == "type":
            return f"type {intent.what}"
        if intent.verb == "tap":
            return self._label_of_another_name(step, intent.what) or self._tap_line(number)
        if intent.verb == "home" and (text := self._just_read(number)):
            return f"go home for {text}"
        return _PRESSES.get(intent.verb) or self._line(number, number) or intent.verb

    def _label_of_another_name(self, step: Step, key: str) -> str:
        """The step for a button or field that the screen calls otherwise than its key; empty for any other target."""
        touched = element_at(step.elements, step.action.touch_yx)
        if ":" in key or touched is None or not touched.text or _words(touched.text) & _words(self._name(key)):
            return ""
        return f"tap {touched.text}"

    def _just_read(self, number: int) -> str:
        """The text to type that the intent before this one was for; empty if it was for none.

        The step says it, because an agent that remembers only its steps needs it later.
        """
        before = self._intents[number - 1] if number else None
        if before is None or before.what.partition(":")[0] not in _READ:
            return ""
        texts = (one.what for one in self._intents[number:] if one.verb == "type")
        return next((text for text in texts if not _words(text) <= self._of_goal and self._is_known(text)), "")

    def later(self, reason: Reason, number: int) -> Iterator[str]:
        """The lines after the immediate step."""
        intent = self._intents[number]
        if reason.cause == "impossible":
            return
        is_done = reason.cause != "in the way" and (reason.cause != "hidden" or intent.verb != "tap")
        for after in range(number + is_done, len(self._intents)):
            one = self._intents[after]
            is_for_the_same = reason.cause == "hidden" and one.verb == "swipe" and one.wants == reason.wants
            if not is_for_the_same and (line := self._line(after, number)):
                yield line

    def _line(self, number: int, now: int) -> str:
        """The words of an intent without its screen, while the intent `now` is pursued; empty if it has none."""
        intent = self._intents[number]
        if intent.verb == "tap":
            return self._tap_line(number, is_later=True)
        if intent.verb == "type":
            return f"type {intent.what}" if self._is_read(intent.what, now, number) else "type the text"
        if intent.verb == "see":
            return f"look for {self._name(intent.what)}"
        if intent.verb == "swipe":
            return self._swipe_line(intent)
        if intent.verb == "impossible":
            return ""
        return SEARCH if intent.verb == "enter" else _PRESSES.get(intent.verb, intent.verb)

    def _is_read(self, text: str, now: int, number: int) -> bool:
        """Whether a text to type is known: it is in the goal, or nothing that holds a text is still to be read."""
        if _words(text) <= self._of_goal:
            return True
        targets = {one.what.partition(":")[0] for one in self._intents[now:number] if one.verb in ("tap", "see")}
        return self._is_known(text) and not targets & _READ

    def _swipe_line(self, intent: "Intent") -> str:
        if intent.what == "shade":
            return QUICK_SETTINGS
        if intent.wants:
            return f"look for {intent.wants}" if self._is_known(intent.wants) else ""
        return f"look {OPPOSITE[intent.what]}"

    def _tap_line(self, number: int, is_later: bool = False) -> str:
        key = self._intents[number].what
        kind, separator, _ = key.partition(":")
        if is_later and kind == "suggest":
            return SEARCH
        if is_later and kind == "remove" and not _words(name_of(key)) <= self._of_goal:
            return f"remove the {_GENERAL[kind]}"  # an item of this name may be shown elsewhere
        verb = "tap"
        if separator and kind in _OPENED:
            verb = "open"
        elif separator and kind in _DONE:
            verb = kind
        line = f"{verb} {self._name(key)}"
        is_repeated = number > 0 and self._intents[number - 1] == self._intents[number]
        return f"{line} again" if is_repeated else line

    def _name(self, key: str) -> str:
        """The name of a target, or a general word for it."""
        kind, separator, _ = key.partition(":")
        if separator:
            name = name_of(key)
            return name if kind in _SOFTWARE or self._is_known(name) else f"the {_GENERAL.get(kind, kind)}"
        label = _LABELS.get(key, name_of(key))
        return label[:1].upper() + label[1:]

    def _is_known(self, text: str) -> bool:
        return _words(text) <= self._known


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text.casefold()))
