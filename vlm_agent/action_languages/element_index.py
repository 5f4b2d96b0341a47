"""The language of D-PoT (table 2): one JSON object, which chooses an element by its number.

    {"action_type": "click", "idx": 7}                {"action_type": "navigate_home"}
    {"action_type": "scroll", "direction": "up"}      {"action_type": "navigate_back"}
    {"action_type": "type", "text": "…"}              {"action_type": "press_enter"}
    {"action_type": "status_complete"}                {"action_type": "status_impossible"}: ours

Action types that AITW does not have are ours too: `long_press` with `idx`, `open_app` and `answer` with `text`,
`navigate_recents`, `wait`. So are `click_at` and `long_press_at` with `point`, [y, x] in fractions of the screen with
three decimals: they are for screens that show no element, and on other screens they are not actions.

A number counts `screen.elements` from 0, as `sentences/html.py` writes them. A tap is written as the smallest element
under the finger; where no element lies, as the nearest one. An element is tapped where it is the smallest one under the
finger, which need not be its centre: a row is tapped beside the switch in it. A swipe is the direction of the finger,
and decodes to one of `SWIPES`. So decoding an encoded action returns it with another point in the same element.

With `names`, a touch is written with the element's name in place of its number (`"idx": "Wi-Fi"`): its text, or the
type of an icon. `"Install (2)"` is the second element named Install. This is ours: a small model copies a name from its
prompt long before it finds the number beside it. Numbers are read, too.

Answers are read leniently: fences and words around the object, single quotation marks as Python writes them, and a
number as a string. An answer with two different actions is none.
"""

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal, TypeGuard

from pydantic import model_serializer

from vlm_agent.action_languages.language import SWIPES, ActionLanguage, LanguageSettings, LanguageVocabulary
from vlm_agent.episodes import KINDS_WITH_TEXT, Action, Screen, UiElement
from vlm_agent.geometry import nearest_box, place_of_box
from vlm_agent.texts.actions import action_in_words
from vlm_agent.texts.lines import one_line
from vlm_agent.texts.ordinals import called, names_of

_UNITS, _CENTRE = 1000, (0.5, 0.5)
_TYPE_KEY = "action_type"
_BY_NUMBER = {"click": Action.tap, "long_press": Action.long_press}
_BY_POINT = {f"{name}_at": action for name, action in _BY_NUMBER.items()}
_BY_TEXT = {kind.short_name: kind for kind in KINDS_WITH_TEXT}
_FIXED = {
    "navigate_home": Action.press("home"),
    "navigate_back": Action.press("back"),
    "press_enter": Action.press("enter"),
    "status_complete": Action.complete(),
    "status_impossible": Action.impossible(),
    "navigate_recents": Action.recents(),
    "wait": Action.wait(),
}
_TYPES = (*_BY_NUMBER, "scroll", *_BY_TEXT, *_FIXED)

_NAME_OF_KIND = {kind: name for name, kind in _BY_TEXT.items()} | {action.kind: name for name, action in _FIXED.items()}


def _written(name: str, **arguments: Any) -> str:
    return json.dumps({_TYPE_KEY: name, **arguments}, ensure_ascii=False)


def _opening(name: str, key: str) -> str:
    """An action's text up to the value of its argument."""
    return f"{_written(name)[:-1]}, {json.dumps(key)}: "


_WHOLE = [*map(_written, _FIXED), *(_written("scroll", direction=direction) for direction in SWIPES)]
_TEXT_OPENINGS = [_opening(name, "text") + '"' for name in _BY_TEXT]
_NUMBER_OPENINGS = [_opening(name, "idx") for name in _BY_NUMBER]
_NAME_OPENINGS = [opening + '"' for opening in _NUMBER_OPENINGS]
_POINT_OPENINGS = [_opening(name, "point") + "[" for name in _BY_POINT]
_POINT_EXAMPLE = _POINT_OPENINGS[0] + "0.250, 0.500]}"
_ANY_POINT = "0.000, 0.000]}"
_NUMBERS_IN_VOCABULARY = 100
_LONGEST_NAME = 80  # bytes, as JSON

_START = re.compile(r"""\{(?=\s*+["'}])""")
_LITERAL = r'"(?:[^"\\]|\\.)*+"' + r"|'(?:[^'\\]|\\.)*+'"
_STRING = re.compile(_LITERAL, re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]{1,24}(?:\.[0-9]{1,24})?(?:[eE][-+]?[0-9]{1,4})?(?![\w.])")
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_WORD = re.compile(r"[A-Za-z]{4,5}(?!\w)")
_SPACE = re.compile(r"\s*+")
_INNER = re.compile(rf"""{_LITERAL}|[^"'{{}}\[\]]++|[{{}}\[\]]""", re.DOTALL)
_POINT = re.compile(r"\[\s*+([0-9](?:\.[0-9]{1,24})?)\s*+,\s*+([0-9](?:\.[0-9]{1,24})?)\s*+\]")
_ICON = re.compile(r"\w*ICON\w*")
_DIGITS = re.compile(r"[0-9]{1,6}", re.ASCII)
_BRACKETS = {"{": 1, "[": 1, "}": -1, "]": -1}

_WORK_OF_A_BRACE = 64  # in characters read

_TAILS = ('"}', "}", "", *(f'{rest}"}}' for rest in ("n", "0000", "000", "00", "0")))
"""One of these completes an action in whose text a string is open; the last ones complete an escape."""


class _NotAnActionError(Exception):
    """Why an answer is not an action, in words for the model that wrote it."""


class _BrokenError(ValueError):
    """An object breaks: `at` is where."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


@dataclass(frozen=True)
class _Nested:
    """A list or an object within an object, as its text."""

    text: str


@dataclass(frozen=True)
class ElementIndexLanguage(ActionLanguage):
    """The codec. `names`: an element is called by its name, with an ordinal where several have it."""

    names: bool = False

    @property
    def needs_elements(self) -> bool:
        return True

    @property
    def max_tokens(self) -> int:
        return super().max_tokens + (_LONGEST_NAME if self.names else 0)

    @property
    def instructions(self) -> str:
        directions = ", ".join(SWIPES)
        forms = [
            _opening("click", "idx") + "NUMBER}",
            _opening("scroll", "direction") + '"DIRECTION"}',
            _opening("type", "text") + '"WORDS"}',
            *(_written(name) for name, action in _FIXED.items() if action.kind.is_in_aitw),
        ]
        return (
            "Answer with one JSON object and nothing else, in one of these forms:\n"
            + "\n".join(forms)
            + "\nNUMBER is the id of the element to touch"
            + (
                ', or in quotation marks its text or class; "OK (2)" is the second one with the text OK'
                if self.names
                else ""
            )
            + ". DIRECTION is the direction in which the finger moves, one "
            f"of {directions}: up shows what is further down. WORDS are typed into the field in focus. "
            "status_complete: the goal is reached. status_impossible: it cannot be reached."
        )

    def encode(self, action: Action, screen: Screen | None = None, swipe_target: str | None = None) -> str:
        if action.is_swipe:
            return _written("scroll", direction=action.direction)
        if action.kind in _NAME_OF_KIND:
            name = _NAME_OF_KIND[action.kind]
            return _written(name, text=action.text) if name in _BY_TEXT else _written(name)
        name = "click" if action.is_tap else "long_press"
        number = _nearest(screen, action.touch_yx)
        if number is not None:
            return _written(name, idx=_call(number, screen) if self.names else number)
        y, x = (f"{round(value * _UNITS) / _UNITS:.3f}" for value in action.touch_yx)
        return f"{_opening(f'{name}_at', 'point')}[{y}, {x}]}}"

    def in_words(self, action: Action, screen: Screen) -> str:
        """By name, because a number means nothing without its screen."""
        return action_in_words(action, screen)

    def decode(self, text: str, screen: Screen | None = None) -> Action | None:
        try:
            return _action(self._content(text, screen), screen)
        except _NotAnActionError:
            return None

    def problem(self, text: str, screen: Screen | None = None) -> str | None:
        try:
            _action(self._content(text, screen), screen)
        except _NotAnActionError as error:
            return str(error)
        return None

    def predicted_box(self, text: str, screen: Screen | None = None) -> tuple[float, float, float, float] | None:
        """The box of the element that a click chooses; None for any other answer."""
        try:
            content = self._content(text, screen)
            return _elements(screen)[_element_number(content, screen)].box if content[_TYPE_KEY] == "click" else None
        except _NotAnActionError:
            return None

    def _content(self, text: str, screen: Screen | None) -> dict[str, Any]:
        """The object in `text`, with the number of an element in place of its name. Raises _NotAnActionError."""
        content = _only_object(text)
        name = content.get("idx")
        if not self.names or content[_TYPE_KEY] not in _BY_NUMBER or not _is_name(name):
            return content
        numbers = called(name, partial(_named, screen))
        if len(numbers) != 1:
            who, name = "several elements are" if numbers else "no element is", one_line(name)
            raise _NotAnActionError(f"{who} called {json.dumps(name, ensure_ascii=False)}; write the id of one")
        return {**content, "idx": numbers[0]}

    def vocabulary(self) -> LanguageVocabulary:
        """A word tokenizer writes an action without a text in one token, and a click in two."""
        ends = [f"{number}}}" for number in range(_NUMBERS_IN_VOCABULARY)]
        return LanguageVocabulary((*_WHOLE, *_TEXT_OPENINGS, *_NUMBER_OPENINGS, *_POINT_OPENINGS, '"}', *ends))

    def ending(self, text: str) -> str | None:
        """A completion of `text` to an encoded action, whatever the screen; None if there is none.

        It cannot know how many elements the screen has, so a number may be too large for `decode`.
        """
        if text.startswith(tuple(_TEXT_OPENINGS)):
            return next((tail for tail in _TAILS if _is_encoded(text + tail)), None)
        if self.names and text.startswith(tuple(_NAME_OPENINGS)):
            return next((tail for tail in _TAILS if _is_encoded_name(text + tail)), None)
        return _short_ending(text)


class ElementIndexSettings(LanguageSettings):
    """`names`: see `ElementIndexLanguage`."""

    name: Literal["element_index"] = "element_index"
    names: bool = False

    @model_serializer
    def _as_before_names(self) -> dict[str, Any]:
        return {"name": self.name, **({"names": True} if self.names else {})}

    def build(self) -> ElementIndexLanguage:
        return ElementIndexLanguage(self.names)


def _elements(screen: Screen | None) -> tuple[UiElement, ...]:
    return () if screen is None or screen.elements is None else tuple(screen.elements)


def _nearest(screen: Screen | None, point_yx: tuple[float, float]) -> int | None:
    """The number of the element nearest to a point; None if the screen shows no element, whichever the point is."""
    return nearest_box([element.box for element in _elements(screen)], point_yx)


def _is_name(value: object) -> TypeGuard[str]:
    """Whether an answer may call an element so: digits alone are a number."""
    if not isinstance(value, str) or not value or value.isdigit():
        return False
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")) - 2 <= _LONGEST_NAME


def _name(element: UiElement) -> str:
    """What `sentences/html.py` shows of an element: its text, else the class of an icon; empty without both."""
    return one_line(element.text) or (element.type if _ICON.fullmatch(element.type) else "")


def _call(number: int, screen: Screen | None) -> str | int:
    """A name by which a touch is read as one of this element; else its number."""
    find = partial(_named, screen)
    names = names_of(number, _name(_elements(screen)[number]), find)
    return next((name for name in names if _is_name(name) and called(name, find) == [number]), number)


def _named(screen: Screen | None, name: str) -> list[int]:
    """The numbers of the elements with a name, in any case of its letters, with entities of HTML or without."""
    wanted = {one_line(text).casefold() for text in (name, html.unescape(name))} - {""}
    return [number for number, one in enumerate(_elements(screen)) if _name(one).casefold() in wanted]


def _action(content: dict[str, Any], screen: Screen | None) -> Action:
    """The action of an object. Raises _NotAnActionError."""
    name = content[_TYPE_KEY]
    if name in _FIXED:
        return _FIXED[name]
    if name in _BY_NUMBER:
        return _touch(name, content, screen)
    if name == "scroll":
        direction = content.get("direction")
        if direction not in SWIPES:
            raise _NotAnActionError(f"the direction of a scroll is one of {', '.join(SWIPES)}")
        return Action.swipe(*SWIPES[direction])
    try:
        if name in _BY_TEXT:
            if not isinstance(text := content.get("text"), str):
                raise _NotAnActionError(f"{name} needs text, as a string")
            return Action(_BY_TEXT[name], text=text)
        point = content.get("point")
        if name in _BY_POINT and isinstance(point, _Nested) and _nearest(screen, _CENTRE) is None:
            match = _POINT.fullmatch(point.text)
            if match is not None:
                return _BY_POINT[name](float(match[1]), float(match[2]))
    except ValueError as error:  # a point off the screen, a lone surrogate
        raise _NotAnActionError(str(error)) from None
    raise _NotAnActionError(f"action_type must be one of {', '.join(_TYPES)}")


def _touch(name: str, content: dict[str, Any], screen: Screen | None) -> Action:
    number = _element_number(content, screen)
    place = place_of_box([element.box for element in _elements(screen)], number)
    if place is None:
        raise _NotAnActionError(f"element {number} is not on the screen")
    return _BY_NUMBER[name](*place)


def _element_number(content: dict[str, Any], screen: Screen | None) -> int:
    number, count = content.get("idx"), len(_elements(screen))
    if isinstance(number, str) and _DIGITS.fullmatch(number):
        number = int(number)
    if not count:
        raise _NotAnActionError(
            "the screen has no element to choose; touch a point, [y, x] in shares of its height and width, as in "
            f"{_POINT_EXAMPLE}"
        )
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < count:
        raise _NotAnActionError(f"idx must be the id of an element, a whole number from 0 to {count - 1}")
    return number


def _only_object(text: str) -> dict[str, Any]:
    """The object with an action type in `text`. Raises _NotAnActionError if there is none, or two that differ."""
    found: dict[str, Any] | None = None
    for content in _objects(text):
        if not isinstance(content.get(_TYPE_KEY), str):
            continue
        if found is not None and content != found:
            raise _NotAnActionError("there are two actions; answer with one")
        found = content
    if found is None:
        raise _NotAnActionError(f'the answer has no JSON object with "{_TYPE_KEY}"')
    return found


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The objects in `text` that are not within another one, read without recursion.

    A brace that opens no object is passed over. The work is limited to a few times the length of the text: after that
    many characters of broken objects no more are read.
    """
    start, work = _START.search(text), 4 * len(text) + 4096
    while start is not None and work > 0:
        try:
            content, end = _object(text, start.end())
            yield content
        except _BrokenError as broken:
            work -= broken.at - start.start() + _WORK_OF_A_BRACE
            end = start.end()
        start = _START.search(text, end)


def _object(text: str, at: int) -> tuple[dict[str, Any], int]:
    """(object, its end) behind the brace at whose end `at` is. Raises _BrokenError; a repeated key breaks it, too."""
    content: dict[str, Any] = {}
    at = _after_space(text, at)
    if text.startswith("}", at):
        return content, at + 1
    while (match := _STRING.match(text, at)) is not None:
        key = _string(match[0], match.end())
        at = _after_space(text, match.end())
        if not text.startswith(":", at) or key in content:
            break
        content[key], at = _value(text, _after_space(text, at + 1))
        at = _after_space(text, at)
        if text.startswith("}", at):
            return content, at + 1
        if not text.startswith(",", at):
            break
        at = _after_space(text, at + 1)
    raise _BrokenError(at)


def _value(text: str, at: int) -> tuple[Any, int]:
    """(value, its end) at `at`. Raises _BrokenError if no value starts there."""
    if match := _STRING.match(text, at):
        return _string(match[0], match.end()), match.end()
    if match := _NUMBER.match(text, at):
        number = match[0]
        return int(number) if number.removeprefix("-").isdigit() else float(number), match.end()
    if (match := _WORD.match(text, at)) and match[0] in _WORDS:
        return _WORDS[match[0]], match.end()
    if text[at : at + 1] in ("{", "["):
        end = _end_of_nested(text, at)
        return _Nested(text[at:end]), end
    raise _BrokenError(at)


def _end_of_nested(text: str, at: int) -> int:
    """Where the list or object that starts at `at` ends. Raises _BrokenError if it does not."""
    depth = 0
    for match in _INNER.finditer(text, at):
        if match.start() != at:  # a quotation mark that opens no string
            break
        at = match.end()
        depth += _BRACKETS.get(match[0], 0)
        if depth == 0:
            return at
    raise _BrokenError(at)


def _string(literal: str, at: int) -> str:
    """The string of a literal with either kind of quotation mark, that ends `at`. Raises _BrokenError otherwise."""
    if literal.startswith("'"):
        inner = literal[1:-1].replace("\\'", "'")
        literal = (
            '"' + re.sub(r'\\.|"', lambda found: '\\"' if found[0] == '"' else found[0], inner, flags=re.DOTALL) + '"'
        )
    try:
        return str(json.loads(literal, strict=False))  # a line break within a string is read
    except ValueError:
        raise _BrokenError(at) from None


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


@lru_cache(maxsize=1 << 16)
def _short_ending(text: str) -> str | None:
    """`ending` of a text without a string of the user; cached, because decoding repeats the same few prefixes."""
    wholes = [*_WHOLE, *(opening + '"}' for opening in _TEXT_OPENINGS)]
    wholes += [opening + _ANY_POINT for opening in _POINT_OPENINGS] + [opening + "0}" for opening in _NUMBER_OPENINGS]
    endings = [whole[len(text) :] for whole in wholes if whole.startswith(text)]
    # All points have equally many characters, so the end of any point completes one.
    endings += [_ANY_POINT[len(text) - len(opening) :] for opening in _POINT_OPENINGS if text.startswith(opening)]
    endings += [end for end in ("}", "") if any(text.startswith(opening) for opening in _NUMBER_OPENINGS)]
    endings = [ending for ending in endings if _is_encoded(text + ending)]
    # One that needs no elements comes first.
    return min(endings, key=lambda end: ((text + end).startswith(tuple(_NUMBER_OPENINGS)), len(end), end), default=None)


def _is_encoded(text: str) -> bool:
    """Whether `encode` may write `text` on some screen."""
    for opening in _NUMBER_OPENINGS:
        number = text.removeprefix(opening).removesuffix("}")
        if text.startswith(opening):
            return _DIGITS.fullmatch(number) is not None and text == f"{opening}{int(number)}}}"
    language = ElementIndexLanguage()
    action = language.decode(text)
    return action is not None and language.encode(action) == text


def _is_encoded_name(text: str) -> bool:
    """`_is_encoded` of an action that calls an element by its name."""
    try:
        content = _only_object(text)
    except _NotAnActionError:
        return False
    return _is_name(content.get("idx")) and text == _written(content[_TYPE_KEY], idx=content["idx"])
