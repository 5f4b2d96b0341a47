r"""The language of CoAT (Android in the Zoo, appendix B), and the answers in call form of its published prompts.

    CLICK(0.498, 0.607)    SCROLL(up)    TYPE(text)    PRESS(back|home|enter)    STOP(completed|impossible)

Action types that AITW does not have; their text is our own choice, in the same form:

    LONG_PRESS(0.498, 0.607)    OPEN_APP(name)    ANSWER(text)    PRESS(recents)    WAIT()

Points are (y, x) in thousandths of the screen, so the quantization error is at most 0.0005 per axis. A swipe is one of
four directions of the finger, vertical where |dy| ≥ 0.9 |dx|: the rule of CoAT's published code, not AITW's. It decodes
to one of `SWIPES`. A text ends at the last parenthesis of its line; only line breaks and backslashes are escaped, as
`\n`, `\r` and `\\`. So decoding an encoded action returns it with rounded points and a fixed swipe of its direction.

The call form is `{"ACTION": NAME, "ARGS": {…}}`:

    click_element   bbox: [x1, y1, x2, y2] in thousandths, or idx: the number of an element, from 0
    scroll          direction
    input           text
    stop            task_status: success or failure
    press_back, press_home, press_enter

A click taps the centre of its box, which must lie on the screen; `predicted_box` returns the box. An index counts
`screen.elements`, which must be in the order in which the model saw their numbers.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from vlm_agent.action_languages.language import (
    DECISION,
    SWIPES,
    ActionLanguage,
    Coordinate,
    LanguageSettings,
    LanguageVocabulary,
)
from vlm_agent.episodes import BUTTONS, KINDS_WITH_TEXT, Action, Screen, UiElement
from vlm_agent.texts.actions import aitz_direction

ACTION_TYPES = ("click", "scroll", "type", "press", "stop")
"""The action types of the published evaluator, in the order in which it looks for them in the name of a call."""

_UNITS = 1000
_TOUCH = {"CLICK(": Action.tap, "LONG_PRESS(": Action.long_press}
_TEXTS = {f"{kind.name}(": kind for kind in KINDS_WITH_TEXT}
_OPENINGS = {kind: opening for opening, kind in _TEXTS.items()}
_SCROLLS = {f"SCROLL({direction})": Action.swipe(*points) for direction, points in SWIPES.items()}
_FIXED = {f"PRESS({button})": Action.press(button) for button in BUTTONS} | {
    "STOP(completed)": Action.complete(),
    "STOP(impossible)": Action.impossible(),
    "PRESS(recents)": Action.recents(),
    "WAIT()": Action.wait(),
}
_FIXED_TEXT = {action.kind: text for text, action in _FIXED.items()}
_WITHOUT_TEXT = _SCROLLS | _FIXED

_WRITTEN = re.compile(
    rf"(?:^|{DECISION})[ \t`]*+(CLICK|LONG_PRESS|SCROLL|TYPE|OPEN_APP|ANSWER|PRESS|STOP|WAIT)\(", re.MULTILINE
)
_AFTER_THE_ACTION = " \t\r`.;"
_FRACTION = r" *+([0-9](?:\.[0-9]{1,24})?) *+"
_POINT = re.compile(f"{_FRACTION},{_FRACTION}")
_ANY_POINT = "0.000, 0.000)"
_ESCAPED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
_ESCAPES = str.maketrans(_ESCAPED)
_UNESCAPED = {escape: character for character, escape in _ESCAPED.items()}
_ESCAPE = re.compile(r"\\[\\nr]")

_ACTION_KEY = re.compile(r'"ACTION"\s*+:\s*+')
_ARGS_KEY = re.compile(r'"ARGS"\s*+:\s*+\{')
_ARGUMENT_KEYS = {
    name: re.compile(rf'"{name}"\s*+:\s*+') for name in ("bbox", "idx", "direction", "text", "task_status")
}
_WORD = re.compile(r'"([^"\\]{0,64})"')
_SIDE = r"\s*+(-?[0-9]{1,4}(?:\.[0-9]{1,24})?)\s*+"
_BOX = re.compile(rf"\[{_SIDE},{_SIDE},{_SIDE},{_SIDE}\]")
_INDEX = re.compile(r'([0-9]{1,6})(?![\w.])|"([0-9]{1,6})"')
_STATUS = {
    **dict.fromkeys(("success", "completed"), Action.complete()),
    **dict.fromkeys(("failure", "impossible"), Action.impossible()),
}
_JSON = json.JSONDecoder(strict=False)  # a line break within a string is read


@dataclass(frozen=True)
class CoatLanguage(ActionLanguage):
    """The codec.

    `decode` reads an action that has a line to itself or stands behind `DECISION`, or a call. The first of either in
    the text counts, even if it is not a valid action. Calls are read key by key, so fences, thoughts, text around the
    object and missing braces do no harm. Within a JSON string the quotation marks of a key are escaped, so a typed text
    or a thought cannot pass for a call.
    """

    @property
    def instructions(self) -> str:
        example = self.encode(Action.tap(0.25, 0.5))
        directions, buttons = ", ".join(SWIPES), ", ".join(BUTTONS)
        return (
            "Answer with one action and nothing else, on one line, in one of these forms:\n"
            f"{example}\nSCROLL(direction)\nTYPE(words)\nPRESS(button)\nSTOP(completed)\nSTOP(impossible)\n"
            "CLICK has the point to touch: y, from the top of the screen (0) to its bottom (1), then x, from the left "
            f"(0) to the right (1). SCROLL has the direction in which the finger moves, one of {directions}: SCROLL(up)"
            " shows what is further down. TYPE enters words into the field in focus; write them without quotation "
            f"marks. PRESS has one of {buttons}. STOP(completed): the goal is reached. STOP(impossible): it cannot be "
            "reached."
        )

    def encode(self, action: Action, screen: Screen | None = None, swipe_target: str | None = None) -> str:
        if action.kind in _OPENINGS:
            return f"{_OPENINGS[action.kind]}{action.text.translate(_ESCAPES)})"
        if action.kind in _FIXED_TEXT:
            return _FIXED_TEXT[action.kind]
        if action.is_swipe:
            return f"SCROLL({aitz_direction(action)})"
        y, x = (f"{round(value * _UNITS) / _UNITS:.3f}" for value in action.touch_yx)
        return f"{'CLICK' if action.is_tap else 'LONG_PRESS'}({y}, {x})"

    def decode(self, text: str, screen: Screen | None = None) -> Action | None:
        call = _call(text)
        try:
            return _written_action(text) if call is None else _called_action(call, screen)
        except ValueError:  # a point off the screen, a lone surrogate
            return None

    def predicted_box(self, text: str, screen: Screen | None = None) -> tuple[float, float, float, float] | None:
        return predicted_box(text, screen)

    def vocabulary(self) -> LanguageVocabulary:
        """A word tokenizer writes an action without point and text as one token, and a click as six.

        Coordinates are the first two decimals, with the text before them for x: `0.49` and `, 0.60`.
        """
        phrases = (*_TOUCH, *_TEXTS, *_WITHOUT_TEXT)
        hundredths = [(f"0.{number:02}", (number + 0.5) / 100) for number in range(100)]
        rows = [Coordinate(text, 0, place) for text, place in hundredths]
        columns = [Coordinate(f", {text}", 1, place) for text, place in hundredths]
        return LanguageVocabulary(phrases, (*rows, *columns))

    def ending(self, text: str) -> str | None:
        """The shortest completion of `text` to an encoded action; None if no completion exists."""
        if any(text.startswith(opening) for opening in _TEXTS):
            ending = "" if text.endswith(")") else ")"
            is_one_line = "\n" not in text and "\r" not in text
            return ending if is_one_line and self.decode(text + ending) is not None else None
        return _short_ending(text)


class CoatSettings(LanguageSettings):
    """The language has no settings but its name."""

    name: Literal["coat"] = "coat"

    def build(self) -> CoatLanguage:
        return CoatLanguage()


def predicted_box(text: str, screen: Screen | None = None) -> tuple[float, float, float, float] | None:
    """The box (y, x, height, width) that a click in call form names, in screen fractions; None for any other answer.

    A `bbox` is returned even if it extends beyond the screen, where `decode` returns None: the published evaluator
    compares such boxes, too.
    """
    call = _call(text)
    if call is None or _type_of(call) != "click":
        return None
    if (sides := _sides(call)) is not None:
        x1, y1, x2, y2 = sides
        return None if x2 < x1 or y2 < y1 else (y1 / _UNITS, x1 / _UNITS, (y2 - y1) / _UNITS, (x2 - x1) / _UNITS)
    match = call.argument("idx", _INDEX)
    index = None if match is None else int(match[1] or match[2])
    elements = () if screen is None or screen.elements is None else screen.elements
    return elements[index].box if index is not None and index < len(elements) else None


@dataclass(frozen=True)
class _Call:
    """A call within `text`: its name, and where its arguments start and end."""

    text: str
    name: str
    start: int
    end: int

    def place(self, key: str) -> int | None:
        """Where the value of an argument starts; None without that argument."""
        match = _ARGUMENT_KEYS[key].search(self.text, self.start, self.end)
        return None if match is None else match.end()

    def argument(self, key: str, pattern: re.Pattern[str]) -> re.Match[str] | None:
        place = self.place(key)
        return None if place is None else pattern.match(self.text, place, self.end)


def _call(text: str) -> _Call | None:
    """The first call in `text`; None if it has none, or first an action on a line of its own. Linear in the length."""
    key, written = _ACTION_KEY.search(text), _WRITTEN.search(text)
    if key is None or (written is not None and written.start() < key.start()):
        return None
    name, next_key, args = _WORD.match(text, key.end()), _ACTION_KEY.search(text, key.end()), _ARGS_KEY.search(text)
    start = end = len(text) if next_key is None else next_key.start()
    if args is not None and args.end() <= end:
        start, end = args.end(), key.start() if args.start() < key.start() else end
    return _Call(text, "" if name is None else name[1].lower(), start, end)


def _type_of(call: _Call) -> str | None:
    if call.name == "input":
        return "type"
    return next((kind for kind in ACTION_TYPES if kind in call.name), None)


def _called_action(call: _Call, screen: Screen | None) -> Action | None:
    match _type_of(call):
        case "click":
            return _click(call, screen)
        case "scroll":
            direction = call.argument("direction", _WORD)
            return None if direction is None else _SCROLLS.get(f"SCROLL({direction[1].lower()})")
        case "type":
            place = call.place("text")
            if place is None or not call.text.startswith('"', place):
                return None
            return Action.type_text(_JSON.raw_decode(call.text, place)[0])
        case "press":
            return _FIXED.get(f"PRESS({'_'.join(call.name.split('_')[1:2])})")
        case "stop":
            status = call.argument("task_status", _WORD)
            return None if status is None else _STATUS.get(status[1].lower())
    return None


def _click(call: _Call, screen: Screen | None) -> Action | None:
    """A tap at the centre of the box; a `bbox` must lie within the screen, edges included."""
    box, sides = predicted_box(call.text, screen), _sides(call)
    if box is None or (sides is not None and not all(0 <= side <= _UNITS for side in sides)):
        return None
    return Action.tap(*UiElement(box).centre_yx)


def _sides(call: _Call) -> tuple[float, float, float, float] | None:
    """x1, y1, x2, y2 as written."""
    match = call.argument("bbox", _BOX)
    return None if match is None else (float(match[1]), float(match[2]), float(match[3]), float(match[4]))


def _written_action(text: str) -> Action | None:
    """The first action with a line to itself or behind `DECISION`. Raises ValueError for fields that do not fit."""
    match = _WRITTEN.search(text)
    if match is None:
        return None
    end = text.find("\n", match.end())
    content = text[match.end() : len(text) if end < 0 else end].rstrip(_AFTER_THE_ACTION)
    opening = f"{match[1]}("
    if not content.endswith(")"):
        return None
    content = content[:-1]
    if opening in _TEXTS:
        return Action(_TEXTS[opening], text=_ESCAPE.sub(lambda escape: _UNESCAPED[escape[0]], content))
    if opening not in _TOUCH:
        word = content.strip(" \"'").lower() if len(content) <= 64 else content
        return _WITHOUT_TEXT.get(f"{opening}{word})")
    point = _POINT.fullmatch(content)
    return None if point is None else _TOUCH[opening](float(point[1]), float(point[2]))


@lru_cache(maxsize=1 << 16)
def _short_ending(text: str) -> str | None:
    """`ending` of a text without typed text; cached, because decoding repeats the same few prefixes."""
    wholes = [*_WITHOUT_TEXT, *(f"{opening})" for opening in _TEXTS), *(opening + _ANY_POINT for opening in _TOUCH)]
    endings = [whole[len(text) :] for whole in wholes if whole.startswith(text)]
    # All points have equally many characters, so the end of any point completes one.
    endings += [_ANY_POINT[len(text) - len(opening) :] for opening in _TOUCH if text.startswith(opening)]
    return min((ending for ending in endings if _is_encoded(text + ending)), key=len, default=None)


def _is_encoded(text: str) -> bool:
    language = CoatLanguage()
    action = language.decode(text)
    return action is not None and language.encode(action) == text
