"""Languages whose action is one JSON object or Python dictionary.

Swipe words: `to` of `agentcpm` is the direction of the finger, also as an end point; `os_genesis`, `showui` and
`seeclick` name where the content goes, and the finger goes opposite, as their readers have it.

Kinds that a language lacks are written in its form: keys OPEN and ANSWER (`agentcpm`), action types `reply`,
`task_complete`, `task_impossible`, `press_enter` and `press_recents` (`os_genesis`), actions LONG PRESS, OPEN, ANSWER,
WAIT and PRESS RECENTS (`showui`), and the numbers of `ActionKind` (`seeclick`).

ShowUI and SeeClick do not escape typed text, so that one which contains the form's own end is cut there.
"""

import re
from itertools import islice
from typing import Any, ClassVar, Literal

from vlm_agent.action_languages.language import SWIPES
from vlm_agent.action_languages.released.language import Call, Form, ReleasedSettings, Scale
from vlm_agent.action_languages.released.reads import choice, going, plain, stroke, text, touch, touch_xy, worded
from vlm_agent.action_languages.released.texts import IN_OBJECT, json_object, json_text, pairs
from vlm_agent.episodes import ActionKind
from vlm_agent.geometry import OPPOSITE

_WHOLE = re.compile(r"\A\s*+(?=\{)")
_LONG = 200
"""A press of more milliseconds is a long one (AgentCPM-GUI's reader)."""
_ENDS = {
    **dict.fromkeys(("finish", "satisfied"), "complete"),
    **dict.fromkeys(("impossible", "interrupt", "need_feedback"), "impossible"),
}


def _cpm_call(answer: str) -> Call | None:
    """An end counts before a point, a point before a key, a text and a pause."""
    content = json_object(answer, _WHOLE, 1)
    return None if content is None else Call(_cpm_name(content), content)


def _cpm_name(content: dict[str, Any]) -> str:
    status, pause = content.get("STATUS"), content.get("duration", 0)
    if isinstance(status, str) and status in _ENDS:
        return _ENDS[status]
    if "POINT" in content:
        if "to" in content:
            return "stroke" if isinstance(content["to"], list) else "swipe"
        return "long_press" if type(pause) in (int, float) and pause > _LONG else "tap"
    return next((key for key in ("PRESS", "TYPE", "OPEN", "ANSWER", "duration") if key in content), "")


_CPM_KEYS = {"BACK": "back", "HOME": "home", "ENTER": "enter", "APPSELECT": "recents"}


class AgentCpmSettings(ReleasedSettings):
    """AgentCPM-GUI, whole numbers from 0 to 1000."""

    name: Literal["agentcpm"] = "agentcpm"
    FORM: ClassVar[Form] = Form(
        _cpm_call,
        {
            "tap": touch("tap", "POINT"),
            "long_press": touch("long_press", "POINT"),
            "swipe": worded("to", "POINT"),
            "stroke": stroke(("POINT",), ("to",)),
            "PRESS": choice("PRESS", {key.lower(): name for key, name in _CPM_KEYS.items()}),
            "TYPE": text("type", "TYPE"),
            "OPEN": text("open_app", "OPEN"),
            "ANSWER": text("answer", "ANSWER"),
            "duration": plain("wait"),
            "complete": plain("complete"),
            "impossible": plain("impossible"),
        },
        {
            "tap": '{"POINT":[%(x)s,%(y)s]}',
            "long_press": '{"POINT":[%(x)s,%(y)s],"duration":1000}',
            "swipe": '{"POINT":[%(x)s,%(y)s],"to":"%(word)s"}',
            "type": '{"TYPE":%(text)s}',
            "open_app": '{"OPEN":%(text)s}',
            "answer": '{"ANSWER":%(text)s}',
            "wait": '{"duration":200}',
            **{name: f'{{"PRESS":"{key}"}}' for key, name in _CPM_KEYS.items()},
            "complete": '{"STATUS":"finish"}',
            "impossible": '{"STATUS":"impossible"}',
        },
        json_text,
        start_and_word=True,
        scale=Scale(slack=0, whole=True),
    )


_GENESIS = re.compile(r"action:\s*+(?=\{)")
_GENESIS_NAMES = {
    "wait": "wait",
    "navigate_back": "back",
    "navigate_home": "home",
    "press_enter": "enter",
    "press_recents": "recents",
    "task_complete": "complete",
    "task_impossible": "impossible",
}


def _genesis_call(answer: str) -> Call | None:
    content = json_object(answer, _GENESIS)
    name = None if content is None else content.get("action_type")
    return Call(name, content) if content is not None and isinstance(name, str) else None


class OsGenesisSettings(ReleasedSettings):
    """OS-Genesis: AndroidControl's JSON, pixels of the screen."""

    counts_pixels: ClassVar[bool] = True
    name: Literal["os_genesis"] = "os_genesis"
    FORM: ClassVar[Form] = Form(
        _genesis_call,
        {
            "click": touch_xy("tap"),
            "long_press": touch_xy("long_press"),
            "scroll": worded("direction"),
            "type": text("type", "text"),
            "open_app": text("open_app", "app_name"),
            "reply": text("answer", "text"),
            **{written: plain(name) for written, name in _GENESIS_NAMES.items()},
        },
        {
            "tap": '"click", "x": %(x)s, "y": %(y)s',
            "long_press": '"long_press", "x": %(x)s, "y": %(y)s',
            "swipe": '"scroll", "direction": "%(word)s"',
            "type": '"type", "text": %(text)s',
            "open_app": '"open_app", "app_name": %(text)s',
            "answer": '"reply", "text": %(text)s',
            **{name: f'"{written}"' for written, name in _GENESIS_NAMES.items()},
        },
        json_text,
        words=OPPOSITE,
        around='action: {"action_type": %s}',
    )


_SHOW_START = re.compile(r"\{(?=['\"]action['\"])")
_SHOW = re.compile(
    r"""\{(['"])action\1:\s*+(['"])([A-Za-z ]{1,30})\2\s*+,\s*+(['"])value\4:\s*+(?:None|
    '((?:[^']++|'(?!\s*+,\s*+['"]position['"])|(?!))*+)'|"((?:[^"]++|"(?!\s*+,\s*+['"]position['"])|(?!))*+)")
    \s*+,\s*+(['"])position\7:\s*+(?:None|\[\s*+(-?[0-9.]{1,20})\s*+,\s*+(-?[0-9.]{1,20})\s*+\])""",
    re.VERBOSE,
)


def _show_call(answer: str) -> Call | None:
    for start in islice(_SHOW_START.finditer(answer), 8):
        found = _SHOW.match(answer, start.start())
        if found is not None:
            value = found[5] if found[5] is not None else found[6]
            return Call(found[3].upper(), {"value": value, "position": _numbers(found[8], found[9])})
    return None


def _numbers(*texts: str | None) -> list[float] | None:
    try:
        return [float(one) for one in texts if one is not None]
    except ValueError:  # 1.2.3
        return None


def _show_text(typed: str) -> str:
    quote = '"' if "'" in typed and '"' not in typed else "'"
    return f"{quote}{typed}{quote}"


_SHOW_NAMES = {
    **{f"PRESS {name.upper()}": name for name in ("back", "home", "enter", "recents")},
    "STATUS TASK COMPLETE": "complete",
    "STATUS TASK IMPOSSIBLE": "impossible",
    "WAIT": "wait",
}


class ShowUiSettings(ReleasedSettings):
    """ShowUI, fractions with two decimals."""

    name: Literal["showui"] = "showui"
    FORM: ClassVar[Form] = Form(
        _show_call,
        {
            "CLICK": touch("tap", "position"),
            "LONG PRESS": touch("long_press", "position"),
            **{word: going(word) for word in (f"SCROLL {name.upper()}" for name in SWIPES)},
            "TYPE": text("type", "value"),
            "OPEN": text("open_app", "value"),
            "ANSWER": text("answer", "value"),
            **{written: plain(name) for written, name in _SHOW_NAMES.items()},
        },
        {
            "tap": "'CLICK', 'value': None, 'position': [%(x)s, %(y)s]",
            "long_press": "'LONG PRESS', 'value': None, 'position': [%(x)s, %(y)s]",
            "swipe": "'%(word)s', 'value': None, 'position': None",
            "type": "'TYPE', 'value': %(text)s, 'position': None",
            "open_app": "'OPEN', 'value': %(text)s, 'position': None",
            "answer": "'ANSWER', 'value': %(text)s, 'position': None",
            **{name: f"'{written}', 'value': None, 'position': None" for written, name in _SHOW_NAMES.items()},
        },
        _show_text,
        words={name: f"SCROLL {OPPOSITE[name].upper()}" for name in SWIPES},
        point=lambda x, y: {"x": str(round(x, 2)), "y": str(round(y, 2))},
        scale=Scale(1, 1, slack=0.01, digits=2),
        around="{'action': %s}",
    )


_SEE_KEY = re.compile(r"\s*+['\"](\w{1,20}+)['\"]\s*+:\s*+")
_SEE_WORDS = {"up": 0, "down": 1, "right": 8, "left": 9}
_SEE_NAMES = {kind: kind.short_name for kind in ActionKind if not (kind.facts.points or kind.facts.has_text)}
_SEE_TEXTS = {kind: kind.short_name for kind in ActionKind if kind.facts.has_text}
_SEE_TAP, _SEE_LONG = 4, int(ActionKind["LONG_PRESS"])


def _see_call(answer: str) -> Call | None:
    start = answer.find("{")
    content = None if start < 0 else pairs(answer, start + 1, _SEE_KEY, IN_OBJECT)
    number = None if content is None else content.get("action_type")
    return Call(f"{number:g}", content) if content is not None and isinstance(number, float) else None


class SeeClickSettings(ReleasedSettings):
    """SeeClick, numbers of AITW's types and fractions with two decimals."""

    name: Literal["seeclick"] = "seeclick"
    FORM: ClassVar[Form] = Form(
        _see_call,
        {
            str(_SEE_TAP): touch("tap", "click_point"),
            str(_SEE_LONG): touch("long_press", "click_point"),
            **{str(word): going(str(word)) for word in _SEE_WORDS.values()},
            **{str(int(kind)): text(name, "typed_text") for kind, name in _SEE_TEXTS.items()},
            **{str(int(kind)): plain(name) for kind, name in _SEE_NAMES.items()},
        },
        {
            "tap": f'{_SEE_TAP}, "click_point": (%(x)s,%(y)s)',
            "long_press": f'{_SEE_LONG}, "click_point": (%(x)s,%(y)s)',
            "swipe": "%(word)s",
            **{name: f'{int(kind)}, "typed_text": %(text)s' for kind, name in _SEE_TEXTS.items()},
            **{name: str(int(kind)) for kind, name in _SEE_NAMES.items()},
        },
        lambda typed: f'"{typed}"',
        words={name: str(number) for name, number in _SEE_WORDS.items()},
        point=lambda x, y: {"x": f"{x:.2f}", "y": f"{y:.2f}"},
        scale=Scale(1, 1, slack=0.01, digits=2),
        around='{"action_type": %s}',
    )
