"""Actions in words with binned coordinates (Smartphone Assistant, section 3.2 and table 2).

    tap at Y X                    swipe from Y X to Y X       Input text "…"
    press back|home|enter         complete                    impossible

Coordinates are y then x, in `bins` equal bins 0 … bins-1 (the paper's number is lost in its text; 100 is ours).
Parsing returns the centre of the bin, so a point comes back within half a bin on each axis. Typed text is a JSON
string: quotes, backslashes and control characters are escaped, everything else stands as it is. `ending` reads what is
not finished yet, so that decoding can be kept to words that become an action.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from vlm_agent.episodes import BUTTONS, Action, ActionKind, Step

_NUMBER = r"(0|[1-9][0-9]{0,8})"
_TAP = re.compile(rf"tap at {_NUMBER} {_NUMBER}", re.ASCII)
_SWIPE = re.compile(rf"swipe from {_NUMBER} {_NUMBER} to {_NUMBER} {_NUMBER}", re.ASCII)
_TYPE_PREFIX = "Input text "
TAP_OPENING = "tap at "
SWIPE_OPENING = "swipe from "
TYPE_OPENING = _TYPE_PREFIX + '"'
_FIXED = {f"press {button}": Action.press(button) for button in BUTTONS} | {
    "complete": Action.complete(),
    "impossible": Action.impossible(),
}
PHRASES = (TAP_OPENING, SWIPE_OPENING, " to ", TYPE_OPENING, *_FIXED)
"""The fixed words of the language; a tokenizer from scratch gives each one token."""

_FIXED_TEXT = {action.kind: text for text, action in _FIXED.items()}

_PLACE = "#"
_GESTURES = (f"tap at {_PLACE} {_PLACE}", f"swipe from {_PLACE} {_PLACE} to {_PLACE} {_PLACE}")
_DIGITS = re.compile(r"[0-9]*")
_CONTROL = r"\\u00(?:0[0-7be-f]|1[0-9a-f])"  # control characters for which JSON has no short escape
_LITERAL = re.compile(rf'(?:[^"\\\x00-\x1f\ud800-\udfff]|\\["\\nrtfb]|{_CONTROL})*')
_LITERAL_TAILS = {"": '"', '"': ""} | {
    escape[:cut]: escape[cut:] + '"' for escape in (r"\u0000", r"\u0010", r"\n") for cut in range(1, len(escape))
}
"""What may stand behind the last whole character of typed text, and what ends the action from there."""


@dataclass(frozen=True)
class BinnedLanguage:
    """The codec; `bins` per axis, at least 2.

    A swipe so short that its bins' centres would read as a tap is written with its far end moved along its main axis
    to the next bin that keeps it a swipe: the kind of an action always survives, at the cost of a few hundredths of
    the screen on swipes shorter than about 0.05.
    """

    bins: int = 100
    sought: ClassVar[bool] = False

    def __post_init__(self):
        if self.bins < 2:
            raise ValueError(f"bins is {self.bins}; a swipe needs at least 2 bins")

    @property
    def instructions(self) -> str:
        """The language told to a model that was not trained on it."""
        last = self.bins - 1
        return (
            "Answer with one action and nothing else, in one of these forms:\n"
            "tap at Y X\n"
            "swipe from Y X to Y X\n"
            'Input text "WORDS"\n'
            f"{chr(10).join(_FIXED)}\n"
            f"Y and X are whole numbers from 0 to {last}: Y from the top of the screen ({last} is its bottom), X from "
            f"the left ({last} is the right edge). WORDS is what is typed into the field in focus, as a JSON string. "
            "`complete` says that the goal is reached, `impossible` that it cannot be."
        )

    def render(self, action: Action, step: Step | None = None, sought: str | None = None) -> str:
        if action.kind is ActionKind.TYPE:
            return _TYPE_PREFIX + json.dumps(action.text, ensure_ascii=False)
        if action.kind is not ActionKind.DUAL_POINT:
            return _FIXED_TEXT[action.kind]
        if action.is_tap:
            return "tap at {} {}".format(*self._bin(action.touch_yx))
        return "swipe from {} {} to {} {}".format(*self._swipe_bins(action))

    def parse(self, text: str, step: Step | None = None) -> Action | None:
        action = self._read(text)
        # Rendering again is what makes the language exact: leading zeros, needless escapes, swipes that are taps and
        # bins out of range are all refused by one comparison.
        if action is None or self.render(action) != text:
            return None
        return action

    def ending(self, text: str) -> str | None:
        """Words that make an action of `text`, few if not the fewest; None where no words do, "" where it is one.

        A swipe may not end where it would be a tap: nothing reads that as an action.
        """
        if text.startswith(TYPE_OPENING):
            return _LITERAL_TAILS.get(text[_LITERAL.match(text, len(TYPE_OPENING)).end() :])
        return _short_ending(self, text)

    def _fixed_or_gesture_ending(self, text: str) -> str | None:
        whole = (*_FIXED, TYPE_OPENING + '"')
        endings = [fixed[len(text) :] for fixed in whole if fixed.startswith(text)]
        endings += [ending for shape in _GESTURES if (ending := self._gesture_ending(text, shape)) is not None]
        return min(endings, key=len, default=None)

    def _gesture_ending(self, text: str, shape: str) -> str | None:
        """`ending` for gestures of one `shape`, in which every `_PLACE` stands for a bin."""
        at = 0
        for index, expected in enumerate(shape):
            if expected == _PLACE:
                digits = _DIGITS.match(text, at)[0]
                at += len(digits)
                if at == len(text):
                    return self._number_ending(text, digits, shape[index + 1 :])
                if not self._is_bin(digits):
                    return None
            elif at == len(text):
                return self._number_ending(text, None, shape[index:])
            elif text[at] != expected:
                return None
            else:
                at += 1
        return None

    def _number_ending(self, text: str, digits: str | None, rest: str) -> str | None:
        """`ending` where `text` stops at a number of which `digits` are there (None: before a number's place).

        Zeros are enough to try behind a number: of a swipe's end that is too near, either ten times as far is not, or
        a hundred times as far is on the screen. A swipe ends in a corner of the screen: of two opposite ones, one is
        always far enough.
        """
        rest = _PLACE + rest if digits == "" else rest
        rest = rest.replace(_PLACE, "0", max(rest.count(_PLACE) - 2, 0))
        for more in range(len(str(self.bins - 1))) if digits else (0,):
            for corner in ("0", str(self.bins - 1)):
                ending = "0" * more + rest.replace(_PLACE, corner)
                if self.parse(text + ending) is not None:
                    return ending
        return None

    def _is_bin(self, digits: str) -> bool:
        return digits.isdigit() and len(digits) <= len(str(self.bins)) and str(int(digits)) == digits

    def _read(self, text: str) -> Action | None:
        if text in _FIXED:
            return _FIXED[text]
        if text.startswith(_TYPE_PREFIX):
            return _read_typing(text[len(_TYPE_PREFIX) :])
        if match := _TAP.fullmatch(text) or _SWIPE.fullmatch(text):
            numbers = [int(number) for number in match.groups()]
            if max(numbers) < self.bins:
                centres = [(number + 0.5) / self.bins for number in numbers]
                return Action.swipe(tuple(centres[:2]), tuple(centres[-2:]))
        return None

    def _bin(self, point_yx: tuple[float, float]) -> tuple[int, int]:
        return tuple(min(int(value * self.bins), self.bins - 1) for value in point_yx)

    def _swipe_bins(self, swipe: Action) -> tuple[int, int, int, int]:
        touch, lift = list(self._bin(swipe.touch_yx)), list(self._bin(swipe.lift_yx))
        axis = 0 if swipe.direction in ("up", "down") else 1
        away = 1 if swipe.direction in ("down", "right") else -1
        while not self._centres(touch, lift).is_swipe:
            if 0 <= lift[axis] + away < self.bins:
                lift[axis] += away
            else:
                touch[axis] -= away
        return (*touch, *lift)

    def _centres(self, touch: list[int], lift: list[int]) -> Action:
        return Action.swipe(
            tuple((value + 0.5) / self.bins for value in touch), tuple((value + 0.5) / self.bins for value in lift)
        )


@lru_cache(maxsize=1 << 16)
def _short_ending(language: BinnedLanguage, text: str) -> str | None:
    """Kept, because decoding asks for the same few beginnings over and over."""
    return language._fixed_or_gesture_ending(text)


def _read_typing(literal: str) -> Action | None:
    try:
        text = json.loads(literal)
        return Action.type_text(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):  # not JSON, or a lone surrogate, which is no text
        return None
