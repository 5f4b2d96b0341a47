"""A reply of the model becomes a `Call`: an action and the element that it names, not yet checked against a screen.

    {"action": "tap", "element": 12}
    {"action": "long_press", "element": 12}
    {"action": "enter_text", "element": 3, "text": "pizza", "enter": true}
    {"action": "swipe", "direction": "up", "then_tap": "Privacy"}
    {"action": "press", "key": "back"}
    {"action": "stop", "result": "done"}

Fences and words around the object are read, and Chinese punctuation in place of JSON's. Nothing is evaluated.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from vlm_agent.action_languages.language import SWIPES
from vlm_agent.agents.llm.replies import MOST_CHARACTERS
from vlm_agent.episodes import BUTTONS
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
_JSON = json.JSONDecoder(strict=False)  # a line break within a string is read
_STARTS = 50  # opening braces that are tried


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
    """The JSON objects with an action, in order; those within another one are left out."""
    start = text.find("{")
    for _ in range(_STARTS):
        if start < 0:
            return
        try:
            content, end = _JSON.raw_decode(text, start)
            if "action" in content:
                yield content
        except (ValueError, RecursionError):  # no JSON; nested too deeply
            end = start + 1
        start = text.find("{", end)


def _call(content: dict[str, Any]) -> Call:
    name = content["action"]
    action = _NAMES.get(_folded(name)) if isinstance(name, str) else None
    if action is None:
        raise NoCallError("action")
    element = _element(content.get("element"))
    if action in ("tap", "long_press"):
        if element is None:
            raise NoCallError("element")
        return Call(action, element)
    if action == "enter_text":
        return Call(action, element, text=_text(content), enter=content.get("enter") is True)
    if action == "swipe":
        direction = _DIRECTIONS.get(_word(content, "direction"))
        if direction is None:
            raise NoCallError("direction")
        target = content.get("then_tap")
        return Call(action, element, direction=direction, then_tap=one_line(target) if isinstance(target, str) else "")
    if action == "press":
        if (key := _word(content, "key")) not in BUTTONS:
            raise NoCallError("key")
        return Call(action, key=key)
    if (is_done := _RESULTS.get(_word(content, "result"))) is None:
        raise NoCallError("result")
    return Call(action, is_done=is_done)


def _element(value: object) -> int | str | None:
    """An id may be written as a string, with a word or a mark around it; any other string is a name."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    if not isinstance(value, str) or not (name := one_line(value)):
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
