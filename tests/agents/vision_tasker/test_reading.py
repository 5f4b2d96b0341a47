"""Replies of the model: what is read of them, and that any string is a call or none."""

import json
import random
from contextlib import suppress

import pytest

from vlm_agent.agents.vision_tasker.calls import Call, NoCallError, read_call
from vlm_agent.agents.vision_tasker.shown import show
from vlm_agent.episodes import Screen, UiElement

TAP = Call("tap", 12)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ('{"action": "tap", "element": 12}', TAP),
        ('Sure.\n```json\n{"action": "tap",\n "element": "12"}\n```', TAP),
        ('{"thought": {"action": 1}, "action": "click", "element": "#12"}', TAP),
        ('{"action": "tap", "element": 12} or again {"action": "tap", "element": 12}', TAP),
        ('{"action": "long_press", "element": 0}', Call("long_press", 0)),
        ('{"action": "enter_text", "element": 3, "text": "a\\nb", "enter": true}', Call("enter_text", 3, "a\nb", True)),
        ('{"action": "enter_text", "text": "x", "enter": "true"}', Call("enter_text", None, "x", True)),
        ('{"action": "enter_text", "text": "x"}', Call("enter_text", None, "x")),
        ('{"action": "swipe", "direction": "UP", "then_tap": " Privacy "}',
         Call("swipe", direction="up", then_tap="Privacy")),
        ('{"action": "press", "key": "back"}', Call("press", key="back")),
        ('{"action": "stop", "result": "done"}', Call("stop")),
        ('{"action": "stop", "result": "impossible"}', Call("stop", is_done=False)),
        ('{"action": "tap", "element": "Wi-Fi"}', Call("tap", "Wi-Fi")),
        ('{"action": "tap", "element": "-1"}', Call("tap", "-1")),
        ('{"action": "tap", "element": "+1"}', Call("tap", "+1")),
        ('{"action": "tap", "element": "[id=12]"}', TAP),
    ],
)  # fmt: skip
def test_a_reply_is_a_call(text, call):
    assert read_call(text) == call


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("｛“action”：“tap”，“element”：12｝", TAP),
        ("{“action”：“点击”，“element”：“编号１２”}", TAP),
        ('{"action"："tap"，"element"：１２}', TAP),
        ("{‘action’：‘tap’、‘element’：「12」}", TAP),
        (
            '好的，操作如下：｛"action"："输入"，"element"：3，"text"："播放“十年”，然后暂停：对"，"enter"：true｝',
            Call("enter_text", 3, "播放“十年”，然后暂停：对", True),
        ),
        ("{“action”：“滑动”，“direction”：“上”，“then_tap”：“隐私”}", Call("swipe", direction="up", then_tap="隐私")),
        ("{“action”：“停止”，“result”：“完成”}", Call("stop")),
        ("{“action”：“输入”，“text”：“播放“十年”，然后暂停”}", Call("enter_text", None, "播放“十年”，然后暂停")),
        ('{”action“：“输入“，“text”：“他说"好"”}', Call("enter_text", None, '他说"好"')),
    ],
)
def test_chinese_punctuation_is_read_and_kept_within_texts(text, call):
    assert read_call(text) == call


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no_object"),
        ("tap element 12", "no_object"),
        ('{"action": "tap", "element": 12', "no_object"),
        ('{"action": "tap"}', "element"),
        ('{"action": "tap", "element": true}', "element"),
        ('{"action": "tap", "element": [12]}', "element"),
        ('{"action": "tap", "element": 1, "element": 2}', "two_actions"),
        ('{"action": "tap", "element": 1, "element": 2, "why": {"action": "stop", "result": "done"}}', "two_actions"),
        ('{"action": "enter_text", "element": [3], "text": "x"}', "element"),
        ('{"action": "swipe", "element": 3.0, "direction": "up"}', "element"),
        ('{"action": ["tap"], "element": 12}', "action"),
        ('{"action": "rm -rf /", "element": 12}', "action"),
        ('{"action": "enter_text", "element": 12}', "text"),
        ('{"action": "enter_text", "element": 12, "text": "\\ud800"}', "text"),
        ('{"action": "swipe", "direction": "north"}', "direction"),
        ('{"action": "press", "key": "power"}', "key"),
        ('{"action": "stop"}', "result"),
        ('{"action": "tap", "element": 1} {"action": "tap", "element": 2}', "two_actions"),
        ("{" * 100_001, "too_long"),
        ('{"a":' * 20_000, "no_object"),
    ],
)
def test_what_is_no_call_says_why(text, problem):
    with pytest.raises(NoCallError) as error:
        read_call(text)
    assert error.value.problem == problem


def test_an_element_may_be_called_as_the_html_of_the_prompt_writes_it():
    shown = show(Screen(None, (UiElement((0.0, 0.0, 0.1, 0.1), 'Say "hi" & go >'),)), "html", "en", None)
    written = "Say &quot;hi&quot; & go &gt;"
    assert written in shown.description
    assert shown.called(written) == shown.called(f"{written} (1)") == shown.called('Say "hi" & go >') == [0]


PIECES = (
    *'{}[]:,"“”\'‘’「」：，｛｝\\ \n\t\0é十😀\ud800', "action", "tap", "enter_text", "swipe", "stop", "element", "text",
    "direction", "up", "result", "done", "true", "null", "NaN", "-1", "1e999", "12", "99999999999999999999", "１",
    '"action"', '"element": 3', '{"action": "tap", ', "__import__('os')", "\\u0000", "then_tap", "key", "back",
)  # fmt: skip


def hostile(rng: random.Random) -> str:
    if rng.random() < 0.3:  # an object with any values
        values = [
            "tap",
            "enter_text",
            "swipe",
            "stop",
            "press",
            3,
            -1,
            1.5,
            None,
            True,
            [],
            {},
            "",
            "x" * 50,
            "\ud800",
            "12",
        ]
        keys = ("action", "element", "text", "enter", "direction", "then_tap", "key", "result")
        text = json.dumps({key: rng.choice(values) for key in keys if rng.random() < 0.7})
        cut = rng.randrange(len(text) + 1) if rng.random() < 0.3 else len(text)
        return text[:cut]
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(24)))


def test_any_string_is_a_call_or_none():
    rng, calls = random.Random(0), 0
    for _ in range(20_000):
        text = hostile(rng)
        with suppress(NoCallError):
            calls += isinstance(read_call(text), Call)
    assert calls > 100


def test_long_hostile_replies_are_read_in_time():
    for text in ('{"action" ' * 9_000, "“" * 100_000, "{" + '" ' * 49_000, "{“" + "\\" * 90_000, "{" + " " * 99_000):
        with pytest.raises(NoCallError):
            read_call(text)
