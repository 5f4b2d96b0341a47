"""Languages whose action is a call: name(key=value, …).

Where published readers disagree on the direction of a swipe:

- `ui_tars`, `ui_tars15`: the word of `scroll` is where the content goes, and the finger goes opposite (UI-TARS's
  maintainers in its issue 129; AgentCPM-GUI, GUIEvalKit and ClawGUI read it so, ScaleCUA does not).
- `aguvis`: a positive number of pages is up, as in pyautogui, and the finger goes down; `opposite_swipe_words` reads it
  as AgentCPM-GUI does. `scalecua` reads pages the same way, and the word of its `swipe` is the finger's direction.
- `cogagent`: the finger goes opposite to the word. `autoglm`, `ui_venus` and the swipes of `aguvis` have two points.

Kinds that a language lacks are written in its form: `answer`, `press_enter`, `press_recents`, `impossible` (UI-TARS),
`navigate_recents` (ScaleCUA), `answer`, `mobile.press` (Aguvis), `do(action="Answer")` and others (AutoGLM),
`KEY_PRESS` with other keys, `HOLD`, `PAUSE`, `ANSWER`, `FAIL` (CogAgent), `Impossible` (UI-Venus).

AutoGLM, UI-Venus and CogAgent do not escape typed text. A text that contains the form's own end, such as `')</action>`
of UI-Venus, is cut there; CogAgent's calls are one line, so that line breaks of a text become spaces.
"""

import re
from typing import ClassVar, Literal

from vlm_agent.action_languages.language import SWIPES
from vlm_agent.action_languages.released.language import (
    Call,
    DisputedSettings,
    Form,
    PixelSettings,
    ReleasedSettings,
    Scale,
)
from vlm_agent.action_languages.released.reads import (
    choice,
    either,
    going,
    paged,
    plain,
    stroke,
    text,
    touch,
    touch_xy,
    worded,
)
from vlm_agent.action_languages.released.texts import ESCAPED, call, escaped, quoted_point, raw
from vlm_agent.geometry import OPPOSITE

_TARS_START = re.compile(r"(?:\A|Action:)\s*+(?=[a-z_]{1,40}+\()")
_BOX, _END_BOX = ("start_box", "start_point", "point"), ("end_box", "end_point")


def _tars_call(answer: str) -> Call | None:
    start = _TARS_START.search(answer)
    return None if start is None else call(answer, ESCAPED, start.end())


_TARS_READS = {
    "click": touch("tap", *_BOX),
    "long_press": touch("long_press", *_BOX),
    "drag": stroke(_BOX, _END_BOX),
    "scroll": worded("direction", *_BOX),
    "type": text("type", "content"),
    "open_app": text("open_app", "app_name"),
    "answer": text("answer", "content"),
    "finished": plain("complete"),
    "impossible": plain("impossible"),
    "wait": plain("wait"),
    **{f"press_{name}": plain(name) for name in ("back", "home", "enter", "recents")},
}
_TARS_WRITES = {
    "tap": "click(start_box='<|box_start|>(%(x)s,%(y)s)<|box_end|>')",
    "long_press": "long_press(start_box='<|box_start|>(%(x)s,%(y)s)<|box_end|>', time='')",
    "swipe": "scroll(direction='%(word)s')",
    "type": "type(content=%(text)s)",
    "open_app": "open_app(app_name=%(text)s)",
    "answer": "answer(content=%(text)s)",
    "complete": "finished()",
    "impossible": "impossible()",
    "wait": "wait()",
    **{name: f"press_{name}()" for name in ("back", "home", "enter", "recents")},
}
_TARS15_WRITES = _TARS_WRITES | {
    "tap": "click(start_box='(%(x)s,%(y)s)')",
    "long_press": "long_press(start_box='(%(x)s,%(y)s)')",
    "swipe": "scroll(start_box='(%(x)s,%(y)s)', direction='%(word)s')",
    "complete": "finished(content='')",
}


def _tars(writes: dict[str, str], start_and_word: bool) -> Form:
    return Form(
        _tars_call,
        _TARS_READS,
        writes,
        escaped,
        words=OPPOSITE,
        start_and_word=start_and_word,
        scale=Scale(counts=(2, 4), quoted=quoted_point),
        around="Action: %s",
    )


class UiTarsSettings(ReleasedSettings):
    """UI-TARS 1.0, 0 to 1000. Its box tokens are special tokens, which decoded text may lack."""

    name: Literal["ui_tars"] = "ui_tars"
    FORM: ClassVar[Form] = _tars(_TARS_WRITES, start_and_word=False)


class UiTars15Settings(PixelSettings):
    """UI-TARS 1.5 and Doubao."""

    name: Literal["ui_tars15"] = "ui_tars15"
    FORM: ClassVar[Form] = _tars(_TARS15_WRITES, start_and_word=True)
    min_pixels: int = 78_400


_ACTION = "<action>"


def _scale_cua_call(answer: str) -> Call | None:
    _, found, rest = answer.partition(_ACTION)
    return call(rest, ESCAPED) if found else None


class ScaleCuaSettings(PixelSettings):
    """ScaleCUA; points whose numbers are both at most 1 are fractions."""

    name: Literal["scalecua"] = "scalecua"
    FORM: ClassVar[Form] = Form(
        _scale_cua_call,
        {
            "click": touch_xy("tap"),
            "long_press": touch_xy("long_press"),
            "swipe": either("direction", worded("direction"), stroke(("from_coord",), ("to_coord",))),
            "scroll": paged,
            "write": text("type", "message"),
            "open_app": text("open_app", "app_name"),
            "response": text("answer", "answer"),
            "wait": plain("wait"),
            "navigate_back": plain("back"),
            "navigate_home": plain("home"),
            "navigate_recents": plain("recents"),
            "keyboard_enter": plain("enter"),
            "terminate": choice("status", {"success": "complete", "failure": "impossible"}),
        },
        {
            "tap": "click(x=%(x)s, y=%(y)s)",
            "long_press": "long_press(x=%(x)s, y=%(y)s)",
            "swipe": "swipe(from_coord=[%(x)s, %(y)s], to_coord=[%(x2)s, %(y2)s])",
            "type": "write(message=%(text)s)",
            "open_app": "open_app(app_name=%(text)s)",
            "answer": "response(answer=%(text)s)",
            "wait": "wait()",
            "back": "navigate_back()",
            "home": "navigate_home()",
            "recents": "navigate_recents()",
            "enter": "keyboard_enter()",
            "complete": "terminate(status='success')",
            "impossible": "terminate(status='failure')",
        },
        escaped,
        scale=Scale(fractions=True),
        around="<action>\n%s\n</action>",
    )


class AguvisSettings(DisputedSettings):
    """Aguvis, fractions with four decimals; the last line is the action."""

    name: Literal["aguvis"] = "aguvis"
    FORM: ClassVar[Form] = Form(
        lambda answer: call(answer[answer.rfind("\n") + 1 :], ESCAPED),
        {
            "pyautogui.click": touch_xy("tap"),
            "mobile.long_press": touch_xy("long_press"),
            "mobile.swipe": stroke(("from_coord",), ("to_coord",)),
            "pyautogui.scroll": paged,
            "pyautogui.write": text("type", "message"),
            "mobile.open_app": text("open_app", "app_name"),
            "answer": text("answer", "text"),
            "mobile.wait": plain("wait"),
            "mobile.back": plain("back"),
            "mobile.home": plain("home"),
            "mobile.press": choice("key", {"enter": "enter", "recents": "recents"}),
            **dict.fromkeys(
                ("mobile.terminate", "terminate"), choice("status", {"success": "complete", "failure": "impossible"})
            ),
        },
        {
            "tap": "pyautogui.click(x=%(x)s, y=%(y)s)",
            "long_press": "mobile.long_press(x=%(x)s, y=%(y)s)",
            "swipe": "mobile.swipe(from_coord=[%(x)s, %(y)s], to_coord=[%(x2)s, %(y2)s])",
            "type": "pyautogui.write(message=%(text)s)",
            "open_app": "mobile.open_app(app_name=%(text)s)",
            "answer": "answer(text=%(text)s)",
            "wait": "mobile.wait(seconds=3)",
            "back": "mobile.back()",
            "home": "mobile.home()",
            "enter": "mobile.press(key='enter')",
            "recents": "mobile.press(key='recents')",
            "complete": "mobile.terminate(status='success')",
            "impossible": "mobile.terminate(status='failure')",
        },
        escaped,
        point=lambda x, y: {"x": str(round(x, 4)), "y": str(round(y, 4))},
        scale=Scale(1, 1, slack=0.0001, digits=4),
    )


_GLM_START = re.compile(r"<(?:answer|/think)>\s*+(?=(?:do|finish)\()")
_GLM_FIRST = re.compile(r"\s*+(?=(?:do|finish)\()")
_GLM_QUOTES = raw("action", "message", "element", "start", "end", "duration", "text", "app", escaped=frozenset({"app"}))


def _glm_call(answer: str) -> Call | None:
    """The name of the call is the action of do(action=…)."""
    start = _GLM_FIRST.match(answer) or _GLM_START.search(answer)
    if start is None:
        return None
    if answer.startswith("finish(", start.end()):
        return Call("finish", {})
    whole = answer[start.end() :].partition("</answer>")[0]
    found = call(whole[: whole.rfind(")") + 1], _GLM_QUOTES)
    name = None if found is None else found.arguments.get("action")
    return Call(name, found.arguments) if found is not None and isinstance(name, str) else None


def _glm_text(typed: str) -> str:
    return f'"{typed}"'


class AutoGlmSettings(ReleasedSettings):
    """AutoGLM-Phone, 0 to 999. The name of an app has escapes, typed text has none."""

    name: Literal["autoglm"] = "autoglm"
    FORM: ClassVar[Form] = Form(
        _glm_call,
        {
            "Tap": touch("tap", "element"),
            "Long Press": touch("long_press", "element"),
            "Swipe": stroke(("start",), ("end",)),
            **dict.fromkeys(("Type", "Type_Name"), text("type", "text")),
            "Launch": text("open_app", "app"),
            "Answer": text("answer", "text"),
            **{name.title(): plain(name) for name in ("back", "home", "enter", "recents", "wait", "impossible")},
            "finish": plain("complete"),
        },
        {
            "tap": 'do(action="Tap", element=[%(x)s,%(y)s])',
            "long_press": 'do(action="Long Press", element=[%(x)s,%(y)s])',
            "swipe": 'do(action="Swipe", start=[%(x)s,%(y)s], end=[%(x2)s,%(y2)s])',
            "type": 'do(action="Type", text=%(text)s)',
            "open_app": 'do(action="Launch", app=%(text)s)',
            "answer": 'do(action="Answer", text=%(text)s)',
            "wait": 'do(action="Wait", duration="2 seconds")',
            **{name: f'do(action="{name.title()}")' for name in ("back", "home", "enter", "recents", "impossible")},
            "complete": 'finish(message="done")',
        },
        _glm_text,
        {"open_app": lambda name: _glm_text(name.replace("\\", "\\\\").replace("\n", "\\n"))},
        scale=Scale(999, 999),
    )


_VENUS_QUOTES = raw()


def _venus_call(answer: str) -> Call | None:
    _, found, rest = answer.partition(_ACTION)
    whole, closed, _ = rest.partition("</action>")
    if not (found and closed):
        return None
    one = call(whole[: whole.rfind(")") + 1], _VENUS_QUOTES)
    return None if one is None else Call(one.name.lower(), one.arguments)


class UiVenusSettings(PixelSettings):
    """UI-Venus-Navi."""

    name: Literal["ui_venus"] = "ui_venus"
    FORM: ClassVar[Form] = Form(
        _venus_call,
        {
            "click": touch("tap", "box"),
            "longpress": touch("long_press", "box"),
            "scroll": either("start", stroke(("start",), ("end",)), worded("direction")),
            "type": text("type", "content"),
            "launch": text("open_app", "app"),
            "calluser": text("answer", "content"),
            "wait": plain("wait"),
            "finished": plain("complete"),
            "impossible": plain("impossible"),
            "pressrecent": plain("recents"),
            **{f"press{name}": plain(name) for name in ("back", "home", "enter")},
        },
        {
            "tap": "Click(box=(%(x)s,%(y)s))",
            "long_press": "LongPress(box=(%(x)s,%(y)s))",
            "swipe": "Scroll(start=(%(x)s,%(y)s), end=(%(x2)s,%(y2)s))",
            "type": "Type(content=%(text)s)",
            "open_app": "Launch(app=%(text)s)",
            "answer": "CallUser(content=%(text)s)",
            "wait": "Wait()",
            "complete": "Finished(content='')",
            "impossible": "Impossible()",
            "recents": "PressRecent()",
            **{name: f"Press{name.title()}()" for name in ("back", "home", "enter")},
        },
        lambda typed: f"'{typed}'",
        scale=Scale(quoted=quoted_point),
        around="<action>%s</action>",
    )
    min_pixels: int = 650_720
    max_pixels: int = 10_035_200


_COG_START = "Grounded Operation:"
_COG_QUOTES = raw("box", "element_type", "element_info", "text", "url", "app", "step_count", "key")
_COG_KEYS = {"return": "enter", "enter": "enter", "back": "back", "home": "home", "recents": "recents"}


def _cog_call(answer: str) -> Call | None:
    _, found, rest = answer.partition(_COG_START)
    line = rest.partition("\n")[0]
    return call(line[: line.rfind(")") + 1], _COG_QUOTES) if found else None


def _cog_box(x: float, y: float) -> dict[str, str]:
    """A box of 40 x 30 thousandths about the point, cut at 0 and 999."""
    x, y = min(x, 999), min(y, 999)
    numbers = (min(max(round(number), 0), 999) for number in (x - 20, y - 15, x + 20, y + 15))
    return {"box": "[[" + ",".join(f"{number:03}" for number in numbers) + "]]"}


class CogAgentSettings(ReleasedSettings):
    """CogAgent-9B; boxes of three-digit thousandths, whose centre is meant. A point near the edge comes back up to a
    quarter of such a box further in, because its box is cut."""

    name: Literal["cogagent"] = "cogagent"
    FORM: ClassVar[Form] = Form(
        _cog_call,
        {
            "CLICK": touch("tap", "box"),
            **{word: going(word, "box") for word in (f"SCROLL_{name.upper()}" for name in SWIPES)},
            "HOLD": touch("long_press", "box"),
            "TYPE": text("type", "text"),
            "LAUNCH": text("open_app", "app"),
            "ANSWER": text("answer", "text"),
            "PAUSE": plain("wait"),
            "KEY_PRESS": choice("key", _COG_KEYS),
            "END": plain("complete"),
            "FAIL": plain("impossible"),
        },
        {
            "tap": "CLICK(box=%(box)s, element_type='clickable', element_info='item')",
            "long_press": "HOLD(box=%(box)s, element_type='clickable', element_info='item')",
            "swipe": "%(word)s(box=%(box)s, element_type='list', element_info='page', step_count=5)",
            "type": "TYPE(box=[[100,100,200,120]], text=%(text)s, element_type='field', element_info='')",
            "open_app": "LAUNCH(app=%(text)s, url='None')",
            "answer": "ANSWER(text=%(text)s)",
            "wait": "PAUSE()",
            "enter": "KEY_PRESS(key='Return')",
            **{name: f"KEY_PRESS(key='{name.title()}')" for name in ("back", "home", "recents")},
            "complete": "END()",
            "impossible": "FAIL()",
        },
        lambda typed: "'" + typed.replace("\n", " ") + "'",
        words={name: f"SCROLL_{OPPOSITE[name].upper()}" for name in SWIPES},
        point=_cog_box,
        start_and_word=True,
        scale=Scale(counts=(4,)),
        around=f"{_COG_START} %s",
    )
