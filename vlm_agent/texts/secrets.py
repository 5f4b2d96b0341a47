"""Secrets: what is typed into a password field, and card numbers. They are masked before they are written to a file.

A typed text is a secret if

1. the phone states that the focused field is one for passwords, or shows its content as dots; or
2. the name of the field has one of the words of secrets.yaml, such as "password" or "card number"; or, if the finger
   touched no named element, that of an element within `NEAR` of it, which may be the field's label; or
3. the name of the activity has one of `ACTIVITY_WORDS`; or
4. the field is not known, and any text on the screen has one of these words; or
5. it holds a card number.

The field is the element of the last touch, as long as it is still where it was touched. It is not known after enter,
which may move to the next field, and in an activity in which nothing was touched.

A card number has 13 to 19 digits (ISO/IEC 7812) that pass the Luhn check. One space or dash may lie between two digits.
Of a longer row of digits, the parts between spaces or dashes are tried: `CARD CARD` and `CARD CVC` are masked, and a
number of 20 digits without a space is not a card number.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vlm_agent.episodes import Action, ActionKind, UiElement, element_at
from vlm_agent.geometry import distance
from vlm_agent.texts.folding import WordList, read_word_lists

MASK = "•" * 8
"""Replaces a secret, of whatever length."""

CARD_DIGITS = range(13, 20)

_BEFORE = (
    *("confirm", "confirm new", "confirm your", "current", "enter", "enter new", "enter the", "enter your", "new"),
    *("old", "repeat", "retype", "verify", "your", "your new"),
)

_LISTS = read_word_lists(Path(__file__).with_suffix(".yaml"))

_WORDS = (
    *(f"{before} {word}" for before in _BEFORE for word in ("password", "passcode", "passphrase", "pin")),
    *_LISTS["words"],
)

ACTIVITY_WORDS = ("password", "passcode", "pin", "credential", "credentials")
"""Words in the name of an activity (`.ConfirmLockPassword`)."""

NEAR = 0.06
"""In screen heights or widths. Labels are above or beside their field."""

SHORT = 4
"""A secret of fewer characters is masked as a whole word alone."""

_DOTS = frozenset("•●∙·*＊⚫")
_WORD_LIST = WordList(_WORDS, _LISTS["unspaced"], re.compile(r"[^\W_]+"))
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+")

_GROUP_START = re.compile(r"(?<!\d)\d")
_ROW = re.compile(rf"\d(?:[\s\-‐-―−]?\d){{{CARD_DIGITS[0] - 1},{CARD_DIGITS[-1] - 1}}}")
_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
"""The sum of the digits of twice a digit."""


def mask_cards(text: str) -> str:
    """`text` with `MASK` in place of each card number: from left to right the longest that begins with a group."""
    parts, written = [], 0
    for group in _GROUP_START.finditer(text):
        start = group.start()
        if start >= written and (end := _end_of_card(text, start)) is not None:
            parts += [text[written:start], MASK]
            written = end
    return "".join([*parts, text[written:]])


def has_card(text: str) -> bool:
    return mask_cards(text) != text


def _end_of_card(text: str, start: int) -> int | None:
    """The end of the longest card number from `start` to the end of a group; None without one."""
    if (row := _ROW.match(text, start)) is None:
        return None
    ends = [place for place, letter in enumerate(row[0], start + 1) if letter.isdecimal()]
    digits = [int(text[end - 1]) for end in ends]
    doubled = [_DOUBLED[digit] for digit in digits]
    for last in range(len(ends) - 1, CARD_DIGITS[0] - 2, -1):
        # The Luhn check (ISO/IEC 7812-1): every second digit from the right is doubled, and the sum ends with 0.
        passes = (sum(digits[last::-2]) + sum(doubled[last - 1 :: -2])) % 10 == 0
        if passes and not text[ends[last] : ends[last] + 1].isdecimal():
            return ends[last]
    return None


def names_secret(text: str) -> bool:
    """Whether the name of a field says that its content is a secret; also True for a content shown as dots."""
    letters = set(text.replace(" ", ""))
    if len(text) >= 2 and letters and letters <= _DOTS:
        return True
    return _WORD_LIST.find(text) is not None


@dataclass(frozen=True)
class Focus:
    """The field that text is typed into, as far as it is known: the last touch, and the screen that was touched.

    `touch_yx` is None if the field is not known.
    """

    activity: str = ""
    touch_yx: tuple[float, float] | None = None
    elements: tuple[UiElement, ...] = ()

    def after(self, action: Action, activity: str, elements: Sequence[UiElement] | None) -> "Focus":
        """The focus after an action on a screen. A touch on a key of the screen's keyboard does not change it."""
        if action.is_touch:
            touched = element_at(elements or (), action.touch_yx)
            is_key = touched is not None and len(touched.text) == 1 and activity == self.activity
            return self if is_key else Focus(activity, action.touch_yx, tuple(elements or ()))
        if action.kind is ActionKind.PRESS_ENTER or activity != self.activity:
            return Focus(activity)
        return self

    def is_secret(self, text: str, activity: str, elements: Sequence[UiElement] | None) -> bool:
        """Whether `text`, typed on the screen with these elements, is a secret by the rule above."""
        now, name = tuple(elements or ()), activity.rpartition("/")[2]
        if has_card(text) or any(word.lower() in ACTIVITY_WORDS for word in _CAMEL.split(name)):
            return True
        if activity != self.activity or self.touch_yx is None:
            return _has_name(now)
        touched = element_at(self.elements, self.touch_yx)
        if touched is None or not touched.text:
            near = [element for element in self.elements if distance(element.box, self.touch_yx) <= NEAR]
            labels = [element for element in near if element.text]
            return _has_name(labels or now)
        if names_secret(touched.text):
            return True
        here = element_at(now, self.touch_yx)
        return here != touched and _has_name(now)


@dataclass
class Secrets:
    """The secrets of one session, in the order in which they were typed, and texts without them.

    Text that is typed in several pieces is one secret.
    """

    found: list[str] = field(default_factory=list)
    _typed: str = field(default="", init=False)

    def add(self, text: str, continues: bool) -> None:
        """`continues`: whether it is the next piece of the secret before it."""
        self._typed = self._typed + text if continues else text
        for secret in (self._typed, text):
            if secret.strip() and secret not in self.found and (secret == self._typed or len(secret) >= SHORT):
                self.found.append(secret)
        self.found.sort(key=len, reverse=True)

    def mask(self, text: str) -> str:
        """`text` with `MASK` in place of every secret and every card number.

        A secret of at most three characters is masked as a whole word alone.
        """
        for secret in self.found:
            for written in dict.fromkeys(
                (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
            ):
                if len(secret) >= SHORT:
                    text = text.replace(written, MASK)
                else:
                    text = re.sub(rf"(?<!\w){re.escape(written)}(?!\w)", MASK, text)
        return mask_cards(text)

    def has_secret(self, text: str) -> bool:
        return self.mask(text) != text


def _has_name(elements: Iterable[UiElement]) -> bool:
    return any(names_secret(element.text) for element in elements)
