"""A reply of the model becomes a `Call`: an action and the element that it names, not yet checked against a screen.

    {"action": "tap", "element": 12}
    {"action": "long_press", "element": 12}
    {"action": "enter_text", "element": 3, "text": "pizza", "enter": true}
    {"action": "swipe", "direction": "up", "then_tap": "Privacy"}
    {"action": "press", "key": "back"}
    {"action": "stop", "result": "done"}

Fences and words around the object are read, and Chinese punctuation in place of JSON's. Nothing is evaluated.

The actions that a call takes on a phone, one after the other:

    enter_text   tap the field, type, press enter
    swipe        swipe, then tap what it brought into view
    all others   one action

Only the first one needs an element of the screen that the call was written for. So the others follow from the call
alone, and the last from the screen that it is performed on.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from vlm_agent.action_languages.language import SWIPES
from vlm_agent.agents.llm.replies import JSON, MOST_CHARACTERS, STARTS, RepeatedKeyError
from vlm_agent.agents.vision_tasker.shown import ShownScreen
from vlm_agent.episodes import BUTTONS, Action
from vlm_agent.screens.seen import Box
from vlm_agent.texts.folding import normalized
from vlm_agent.texts.lines import one_line

Name = Literal["tap", "long_press", "enter_text", "swipe", "press", "stop"]
Problem = Literal["too_long", "no_object", "two_actions", "action", "element", "text", "direction", "key", "result"]
"""Why a reply is not a call: a key of `VisionTaskerPrompts.problems`."""

_NAMES: dict[str, Name] = {
    **dict.fromkeys(("tap", "click", "点击", "点按", "轻触"), "tap"),
    **dict.fromkeys(("long_press", "long press", "长按"), "long_press"),
    **dict.fromkeys(("enter_text", "enter text", "type", "input", "输入", "输入文字", "输入文本"), "enter_text"),
    **dict.fromkeys(("swipe", "scroll", "滑动"), "swipe"),
    **dict.fromkeys(("press", "按键"), "press"),
    **dict.fromkeys(("stop", "停止", "结束"), "stop"),
}
_DIRECTIONS = {name: name for name in SWIPES} | {"上": "up", "下": "down", "左": "left", "右": "right"}
_RESULTS = {"done": True, "完成": True, "impossible": False, "无法完成": False}

_AROUND = r"[\s#=:.()\[\]{}<>\"'「」【】号]{0,4}"
_NUMBER = re.compile(rf"{_AROUND}(?:id|element|编号|元素)?{_AROUND}([0-9]{{1,6}}){_AROUND}", re.IGNORECASE)


class NoCallError(Exception):
    """`problem`: why a reply is not a call."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem: Problem = problem


@dataclass(frozen=True)
class Call:
    """`element`: an id, or the name that the model wrote in its place; None without one. `enter`: press enter after the
    text. `then_tap`: the name of an element to be tapped once a swipe has brought it into view. `is_done`: of a stop.
    """

    action: Name
    element: int | str | None = None
    text: str = ""
    enter: bool = False
    direction: str = ""
    then_tap: str = ""
    key: str = ""
    is_done: bool = True


def read_call(text: str) -> Call:
    """Raises NoCallError, and no other error, whatever the text."""
    if len(text) > MOST_CHARACTERS:
        raise NoCallError("too_long")
    readings = (text, with_plain_punctuation(text), with_plain_punctuation(text, is_mixed=True))
    found = next(filter(None, (list(_objects(reading)) for reading in readings)), None)
    if found is None:
        raise NoCallError("no_object")
    calls = {_call(content) for content in found}
    if len(calls) > 1:
        raise NoCallError("two_actions")
    return calls.pop()


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects with an action, in order; those within another one are left out. A repeated key is an error."""
    start = text.find("{")
    for _ in range(STARTS):
        if start < 0:
            return
        try:
            content, end = JSON.raw_decode(text, start)
            if "action" in content:
                yield content
        except RepeatedKeyError:
            raise NoCallError("two_actions") from None
        except (ValueError, RecursionError):  # no JSON; nested too deeply
            end = start + 1
        start = text.find("{", end)


def _call(content: dict[str, Any]) -> Call:
    name = content["action"]
    action = _NAMES.get(_folded(name)) if isinstance(name, str) else None
    if action is None:
        raise NoCallError("action")
    if action == "press":
        if (key := _word(content, "key")) not in BUTTONS:
            raise NoCallError("key")
        return Call(action, key=key)
    if action == "stop":
        if (is_done := _RESULTS.get(_word(content, "result"))) is None:
            raise NoCallError("result")
        return Call(action, is_done=is_done)
    element = _element(content.get("element"))
    if action == "enter_text":
        enter = content.get("enter") is True or _word(content, "enter") == "true"
        return Call(action, element, text=_text(content), enter=enter)
    if action == "swipe":
        direction = _DIRECTIONS.get(_word(content, "direction"))
        if direction is None:
            raise NoCallError("direction")
        target = content.get("then_tap")
        return Call(action, element, direction=direction, then_tap=one_line(target) if isinstance(target, str) else "")
    if element is None:
        raise NoCallError("element")
    return Call(action, element)


def _element(value: object) -> int | str | None:
    """An id may be written as a string, with a word or a mark around it; any other string is a name. None for null,
    false and an empty string."""
    if type(value) is int:
        return value
    if not isinstance(value, str):
        if value is None or value is False:
            return None
        raise NoCallError("element")
    if not (name := one_line(value)):
        return None
    match = _NUMBER.fullmatch(normalized("NFKC", name))
    return name if match is None else int(match[1])


def _text(content: dict[str, Any]) -> str:
    text = content.get("text")
    if not isinstance(text, str) or not text:
        raise NoCallError("text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate
        raise NoCallError("text") from None
    return text


def _word(content: dict[str, Any], key: str) -> str:
    value = content.get(key)
    return _folded(value) if isinstance(value, str) else ""


def _folded(text: str) -> str:
    return normalized("NFKC", text).strip().casefold()


# Chinese punctuation

_PLAIN = dict(zip("｛｝［］：，、", "{}[]:,,", strict=True)) | {chr(ord("０") + n): str(n) for n in range(10)}
_CLOSING = {"“": "”", "‘": "’", "「": "」", "『": "』"} | {mark: mark for mark in "\"'＂”„‟’"}
_DOUBLE, _SINGLE = '"“”„‟＂', "'‘’"
_MIXED = _CLOSING | dict.fromkeys(_DOUBLE, _DOUBLE) | dict.fromkeys(_SINGLE, _SINGLE)
"""The quotation marks that open a string → those that close it; mixed: any of the same kind."""

_AFTER_A_STRING = re.compile(r"\s*+[,，、:：}｝\]］]")


def with_plain_punctuation(text: str, is_mixed: bool = False) -> str:
    """`text` with JSON's punctuation for its Chinese forms, outside of strings.

    A quotation mark closes a string where a comma, a colon or a bracket follows, and pairs within the string are
    closed; any other one belongs to the string. `is_mixed`: a string may end with another mark than its own.
    """
    out: list[str] = []
    opening, closing, inner, depth, at = "", "", 0, 0, 0
    while at < len(text):
        letter = text[at]
        if closing:
            if letter == "\\":
                out.append(text[at : at + 2])
                at += 1
            elif letter in closing and not inner and _AFTER_A_STRING.match(text, at + 1):
                out.append('"')
                closing = ""
            else:
                if not is_mixed and closing != opening:
                    inner = max(0, inner + (letter == opening) - (letter == closing))
                out.append('\\"' if letter == '"' else letter)
        elif depth and letter in _CLOSING:
            out.append('"')
            opening, closing, inner = letter, (_MIXED if is_mixed else _CLOSING)[letter], 0
        else:
            plain = _PLAIN.get(letter, letter)
            depth += (plain == "{") - (plain == "}" and depth > 0)
            out.append(plain)
        at += 1
    return "".join(out)


Stage = Literal["touch", "hold", "type", "enter", "swipe", "find", "key", "stop"]

_OF_ACTION: dict[str, tuple[Stage, ...]] = {
    "tap": ("touch",),
    "long_press": ("hold",),
    "press": ("key",),
    "stop": ("stop",),
}


class NoElementError(Exception):
    """The call names an element that the screen does not have, or a name of several. `candidates`: those that it could
    mean, all if it means none."""

    def __init__(self, name: str, candidates: list[int], is_ambiguous: bool) -> None:
        super().__init__(name)
        self.name, self.candidates, self.is_ambiguous = name, candidates, is_ambiguous


def stages_of(call: Call) -> tuple[Stage, ...]:
    if call.action == "enter_text":
        before: tuple[Stage, ...] = () if call.element is None else ("touch",)
        after: tuple[Stage, ...] = ("enter",) if call.enter else ()
        return (*before, "type", *after)
    if call.action == "swipe":
        return ("swipe", "find") if call.then_tap else ("swipe",)
    return _OF_ACTION[call.action]


def element_of(call: Call, shown: ShownScreen) -> int | None:
    """The number of the element that a call names; None if it names none. Raises NoElementError."""
    if call.element is None:
        return None
    if isinstance(call.element, int):
        named = [call.element] if call.element in shown.numbers else []
    else:
        named = shown.called(call.element)
    if len(named) == 1:
        return named[0]
    raise NoElementError(str(call.element), named or shown.numbers, is_ambiguous=bool(named))


def perform(call: Call, stage: Stage, shown: ShownScreen) -> tuple[Action, Box | None] | None:
    """The action of one stage, and the box of the element that it taps.

    None if the element that a swipe was to bring into view is not there, or is there several times. Raises
    NoElementError for the element of a first stage.
    """
    if stage == "type":
        return Action.type_text(call.text), None
    if stage == "enter":
        return Action.press("enter"), None
    if stage == "key":
        return Action.press(call.key), None
    if stage == "stop":
        return (Action.complete() if call.is_done else Action.impossible()), None
    if stage == "find":
        found = shown.called(call.then_tap)
        return _touch(found[0], shown, is_long=False) if len(found) == 1 else None
    number = element_of(call, shown)
    if stage == "swipe":
        return _swipe(call.direction, None if number is None else shown.place(number)), None
    return None if number is None else _touch(number, shown, is_long=stage == "hold")


def _touch(number: int, shown: ShownScreen, is_long: bool) -> tuple[Action, Box] | None:
    place = shown.place(number)
    if place is None:
        return None
    return (Action.long_press if is_long else Action.tap)(*place), shown.boxes[number]


def _swipe(direction: str, place: tuple[float, float] | None) -> Action:
    """Across the middle of the screen, or across the row or column of a place."""
    touch, lift = SWIPES[direction]
    if place is None:
        return Action.swipe(touch, lift)
    if direction in ("up", "down"):
        return Action.swipe((touch[0], place[1]), (lift[0], place[1]))
    return Action.swipe((place[0], touch[1]), (place[0], lift[1]))
