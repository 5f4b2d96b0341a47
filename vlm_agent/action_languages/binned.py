"""The binned language: actions as English text with binned coordinates (Smartphone Assistant, section 3.2, table 2).

    tap at Y X                    swipe from Y X to Y X         Input text "…"
    press back|home|enter         complete                      impossible

Action types that AITW does not have; their text is our own choice:

    long press at Y X             open app "NAME"               answer "TEXT"
    press recents                 wait

Coordinates are y, then x, in `bins` equal bins 0 … bins-1 per axis. The number of bins is missing from the text of the
paper; the default of 100 is our own choice. Decoding returns the centre of a bin, so the quantization error is at most
half a bin per axis. A text is a JSON string: quotes, backslashes and control characters are escaped, every other
character is unchanged. `ending` completes a prefix of an action, for constrained decoding.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from vlm_agent.action_languages.language import ActionLanguage, Coordinate, LanguageSettings, LanguageVocabulary
from vlm_agent.episodes import BUTTONS, Action, ActionKind, Screen
from vlm_agent.geometry import DIRECTIONS, float32_directions

_NUMBER = r"(0|[1-9][0-9]{0,8})"
_TAP = re.compile(rf"tap at {_NUMBER} {_NUMBER}", re.ASCII)
_LONG_PRESS = re.compile(rf"long press at {_NUMBER} {_NUMBER}", re.ASCII)
_SWIPE = re.compile(rf"swipe from {_NUMBER} {_NUMBER} to {_NUMBER} {_NUMBER}", re.ASCII)
TAP_OPENING = "tap at "
LONG_PRESS_OPENING = "long press at "
SWIPE_OPENING = "swipe from "
_TYPE_OPENING, _OPEN_APP_OPENING, _ANSWER_OPENING = 'Input text "', 'open app "', 'answer "'
_KIND_BY_OPENING = {
    _TYPE_OPENING: ActionKind.TYPE,
    _OPEN_APP_OPENING: ActionKind.OPEN_APP,
    _ANSWER_OPENING: ActionKind.ANSWER,
}
_OPENING_BY_KIND = {kind: opening for opening, kind in _KIND_BY_OPENING.items()}
QUOTED_OPENINGS = tuple(_KIND_BY_OPENING)
"""The openings of the actions with a text, quotation mark included."""

_FIXED = {f"press {button}": Action.press(button) for button in BUTTONS} | {
    "complete": Action.complete(),
    "impossible": Action.impossible(),
}
_LATER_FIXED = {"wait": Action.wait(), "press recents": Action.recents()}
_ALL_FIXED = _FIXED | _LATER_FIXED
_FIXED_TEXT = {action.kind: text for text, action in _ALL_FIXED.items()}

PHRASES = (TAP_OPENING, SWIPE_OPENING, " to ", _TYPE_OPENING, *_FIXED)
"""The fixed phrases of AITW's action types; in a tokenizer trained from scratch each is one token."""

LATER_PHRASES = (LONG_PRESS_OPENING, _OPEN_APP_OPENING, _ANSWER_OPENING, *_LATER_FIXED)
"""The fixed phrases of the other action types."""

_PLACE = "#"
_GESTURES = (
    f"{TAP_OPENING}{_PLACE} {_PLACE}",
    f"{LONG_PRESS_OPENING}{_PLACE} {_PLACE}",
    f"{SWIPE_OPENING}{_PLACE} {_PLACE} to {_PLACE} {_PLACE}",
)
_DIGITS = re.compile(r"[0-9]+")
_CONTROL = r"\\u00(?:0[0-7be-f]|1[0-9a-f])"  # control characters for which JSON has no short escape
_LITERAL = re.compile(rf'(?:[^"\\\x00-\x1f\ud800-\udfff]|\\["\\nrtfb]|{_CONTROL})*')
_LITERAL_TAILS = {"": '"', '"': ""} | {
    escape[:cut]: escape[cut:] + '"' for escape in (r"\u0000", r"\u0010", r"\n") for cut in range(1, len(escape))
}
"""The ending of an action whose quoted text is open, by the text after its last complete character."""


@dataclass(frozen=True)
class BinnedLanguage(ActionLanguage):
    """The codec; `bins` per axis, at least 2 (ValueError otherwise).

    If quantization would turn a swipe into a tap or change its direction, the swipe is lengthened along its main axis,
    at its end first, bin by bin; a swipe from edge to edge is narrowed along the other axis. So action type and
    direction are always preserved, at the cost of a few hundredths of the screen for swipes shorter than about 0.05,
    and of at most two bins for swipes near a diagonal.

    `all_action_kinds`: whether instructions and vocabulary contain the action types that AITW does not have. All types
    can be encoded and decoded in either case.
    """

    bins: int = 100
    all_action_kinds: bool = False

    def __post_init__(self) -> None:
        if self.bins < 2:
            raise ValueError(f"bins is {self.bins}; a swipe needs at least 2 bins")

    @property
    def instructions(self) -> str:
        last, later, explanation = self.bins - 1, "", ""
        if self.all_action_kinds:
            later = f'long press at Y X\nopen app "NAME"\nanswer "TEXT"\n{chr(10).join(_LATER_FIXED)}\n'
            explanation = (
                " NAME is the name of an app and TEXT answers the question of the user, both as JSON strings. `press "
                "recents` shows the recently used apps, `wait` does nothing until the screen has loaded."
            )
        return (
            "Answer with one action and nothing else, in one of these forms:\n"
            "tap at Y X\n"
            "swipe from Y X to Y X\n"
            'Input text "WORDS"\n'
            f"{chr(10).join(_FIXED)}\n{later}"
            f"Y and X are whole numbers from 0 to {last}: Y from the top of the screen ({last} is its bottom), X from "
            f"the left ({last} is the right edge). WORDS is what is typed into the field in focus, as a JSON string. "
            f"`complete` says that the goal is reached, `impossible` that it cannot be.{explanation}"
        )

    def encode(self, action: Action, screen: Screen | None = None, swipe_target: str | None = None) -> str:
        if action.kind in _OPENING_BY_KIND:
            return _OPENING_BY_KIND[action.kind] + json.dumps(action.text, ensure_ascii=False)[1:]
        if action.kind in _FIXED_TEXT:
            return _FIXED_TEXT[action.kind]
        if action.kind is ActionKind.LONG_PRESS:
            return "long press at {} {}".format(*self._bin(action.touch_yx))
        if action.is_tap:
            return "tap at {} {}".format(*self._bin(action.touch_yx))
        return "swipe from {} {} to {} {}".format(*self._swipe_bins(action))

    def decode(self, text: str, screen: Screen | None = None) -> Action | None:
        action = self._decode_leniently(text)
        # The round trip makes decoding strict: one comparison rejects leading zeros, needless escapes, and swipes so
        # short that they are taps.
        if action is None or self.encode(action) != text:
            return None
        return action

    def vocabulary(self) -> LanguageVocabulary:
        """Coordinates on the y axis end in a space and those on the x axis do not: "tap at 7 7" has "7 " and "7"."""
        phrases = PHRASES + LATER_PHRASES if self.all_action_kinds else PHRASES
        places = [(number, (number + 0.5) / self.bins) for number in range(self.bins)]
        rows = [Coordinate(f"{number} ", 0, place) for number, place in places]
        columns = [Coordinate(str(number), 1, place) for number, place in places]
        return LanguageVocabulary(phrases, (*rows, *columns))

    def ending(self, text: str) -> str | None:
        """A short, not always the shortest, completion of `text` to an action; None if there is none.

        A swipe that would be a tap is not an action, so a completion ends the swipe far enough from its start.
        """
        for opening in QUOTED_OPENINGS:
            if text.startswith(opening):
                return _LITERAL_TAILS.get(_LITERAL.sub("", text[len(opening) :], count=1))
        return _short_ending(self, text)

    def _gesture_ending(self, text: str, shape: str) -> str | None:
        """`ending` for gestures of the form `shape`, in which each `_PLACE` stands for a bin.

        Appending zeros to the last number is enough: if the end of a swipe is too near, ten times the coordinate is far
        enough, or a hundred times is still on the screen. Missing coordinates of the end become a corner of the screen,
        because one of two opposite corners is always far enough.
        """
        written, places = _DIGITS.findall(text), shape.count(_PLACE)
        missing, is_in_number = places - len(written), text[-1:].isdigit()
        if missing < 0:
            return None
        for more in range(len(str(self.bins - 1))) if is_in_number else (0,):
            for corner in ("0", str(self.bins - 1)):
                numbers = [*written, *["0"] * (missing - 2), *[corner] * min(missing, 2)]
                if is_in_number:
                    numbers[len(written) - 1] += "0" * more
                whole = shape.replace(_PLACE, "{}").format(*numbers)
                if whole.startswith(text) and self.decode(whole) is not None:
                    return whole[len(text) :]
        return None

    def _decode_leniently(self, text: str) -> Action | None:
        """`decode` that may also accept other spellings of an action."""
        if text in _ALL_FIXED:
            return _ALL_FIXED[text]
        for opening, kind in _KIND_BY_OPENING.items():
            if text.startswith(opening):
                return _decode_quoted(kind, text[len(opening) - 1 :])
        is_long_press = text.startswith(LONG_PRESS_OPENING)
        match = _LONG_PRESS.fullmatch(text) if is_long_press else _TAP.fullmatch(text) or _SWIPE.fullmatch(text)
        if match is None:
            return None
        numbers = [int(number) for number in match.groups()]
        if max(numbers) >= self.bins:
            return None
        touch, lift = self._centre(numbers[:2]), self._centre(numbers[-2:])
        return Action.long_press(*touch) if is_long_press else Action.swipe(touch, lift)

    def _bin(self, point_yx: tuple[float, float]) -> tuple[int, int]:
        y, x = (min(int(value * self.bins), self.bins - 1) for value in point_yx)
        return y, x

    def _centre(self, bins_yx: Sequence[int]) -> tuple[float, float]:
        y, x = ((number + 0.5) / self.bins for number in bins_yx)
        return y, x

    def _swipe_bins(self, swipe: Action) -> tuple[int, int, int, int]:
        touch, lift = list(self._bin(swipe.touch_yx)), list(self._bin(swipe.lift_yx))
        axis = 0 if swipe.direction in ("up", "down") else 1
        away = 1 if swipe.direction in ("down", "right") else -1
        while not _goes_like(Action.swipe(self._centre(touch), self._centre(lift)), swipe):
            if 0 <= lift[axis] + away < self.bins:
                lift[axis] += away
            elif 0 <= touch[axis] - away < self.bins:
                touch[axis] -= away
            else:
                lift[1 - axis] += 1 if lift[1 - axis] < touch[1 - axis] else -1
        return touch[0], touch[1], lift[0], lift[1]


class BinnedSettings(LanguageSettings):
    """`bins`: bins per axis. `all_action_kinds`: whether the instructions, and the vocabulary of a tokenizer trained
    from scratch, contain the action types that AITW does not have (see the top of this file)."""

    name: Literal["binned"] = "binned"
    bins: Annotated[int, Field(ge=2)] = 100
    all_action_kinds: bool = False

    @model_validator(mode="before")
    @classmethod
    def _name_no_swipe_targets(cls, content: Any) -> Any:
        if isinstance(content, dict) and content.get("name_swipe_targets"):
            raise ValueError("name_swipe_targets needs a language with names: name: named")
        return content

    def build(self) -> BinnedLanguage:
        return BinnedLanguage(self.bins, self.all_action_kinds)


@lru_cache(maxsize=1 << 16)
def _short_ending(language: BinnedLanguage, text: str) -> str | None:
    """`ending` of a text without a quoted text; cached, because decoding repeats the same few prefixes."""
    whole = (*_ALL_FIXED, *(opening + '"' for opening in QUOTED_OPENINGS))
    endings = [fixed[len(text) :] for fixed in whole if fixed.startswith(text)]
    endings += [ending for shape in _GESTURES if (ending := language._gesture_ending(text, shape)) is not None]
    return min(endings, key=len, default=None)


def _goes_like(decoded: Action, swipe: Action) -> bool:
    """Whether `decoded` has the direction of `swipe`, in float64 and in the float32 of AITW's matcher.

    The two may differ for equal distances on both axes. A swipe between centres of bins stays as it is in any case, so
    that each text is decoded to an action with that text.
    """
    in_float32 = DIRECTIONS[int(float32_directions(decoded.touch_yx, decoded.lift_yx))]
    return decoded == swipe or decoded.direction == in_float32 == swipe.direction


def _decode_quoted(kind: ActionKind, literal: str) -> Action | None:
    try:
        text = json.loads(literal)
        return Action(kind, text=text) if isinstance(text, str) else None
    except (ValueError, RecursionError):  # not JSON, or a lone surrogate, which is not valid Unicode
        return None
