"""Languages whose action is a tool call, a JSON object between tags.

    <tool_call>
    {"name": "mobile_use", "arguments": {"action": "click", "coordinate": [204, 1601]}}
    </tool_call>

The first readable object behind an opening tag counts, whatever its name. A swipe has two points and goes from the
first to the second. `mai_ui` has a start and a word, which is the direction of the finger (MobileWorld, by the same
authors; a guess); `opposite_swipe_words` reads it as ClawGUI does. Its `drag` has two points.

Kinds that a language lacks are written in its form: `answer` (qwen25_mobile_use), `open` (qwen3_mobile_use), and the
button Recents.
"""

import re
from dataclasses import replace
from typing import ClassVar, Literal

from vlm_agent.action_languages.released.language import (
    Call,
    DisputedSettings,
    Form,
    PixelSettings,
    ReleasedSettings,
    Scale,
)
from vlm_agent.action_languages.released.reads import choice, plain, stroke, text, touch, worded
from vlm_agent.action_languages.released.texts import json_object, json_text

_TAG = re.compile(r"<tool_call>\s*+(?:```(?:json)?\s*+)?(?=\{)")
_START = re.compile(r"\s*+(?=\{)")


def _call(answer: str) -> Call | None:
    content = json_object(answer, _TAG)
    if content is None:
        return None
    arguments = content.get("arguments", content)
    if isinstance(arguments, str):
        arguments = json_object(arguments, _START, 1)
    name = arguments.get("action") if isinstance(arguments, dict) else None
    return Call(name, arguments) if isinstance(name, str) else None


_AROUND = '<tool_call>\n{"name": "mobile_use", "arguments": {"action": %s}}\n</tool_call>'
_BUTTONS = {"Back": "back", "Home": "home", "Enter": "enter", "Recents": "recents"}
_READS = {
    **dict.fromkeys(("click", "left_click", "tap"), touch("tap", "coordinate")),
    "long_press": touch("long_press", "coordinate"),
    "swipe": stroke(("coordinate",), ("coordinate2",)),
    "type": text("type", "text"),
    "open": text("open_app", "text"),
    "answer": text("answer", "text"),
    "wait": plain("wait"),
    "system_button": choice("button", {button.lower(): name for button, name in _BUTTONS.items()}),
    "terminate": choice("status", {"success": "complete", "failure": "impossible", "fail": "impossible"}),
}
_WRITES = {
    "tap": '"click", "coordinate": [%(x)s, %(y)s]',
    "long_press": '"long_press", "coordinate": [%(x)s, %(y)s], "time": 2',
    "swipe": '"swipe", "coordinate": [%(x)s, %(y)s], "coordinate2": [%(x2)s, %(y2)s]',
    "type": '"type", "text": %(text)s',
    "open_app": '"open", "text": %(text)s',
    "answer": '"answer", "text": %(text)s',
    "wait": '"wait", "time": 2',
    **{name: f'"system_button", "button": "{button}"' for button, name in _BUTTONS.items()},
    "complete": '"terminate", "status": "success"',
    "impossible": '"terminate", "status": "failure"',
}
_MAI_WRITES = _WRITES | {
    "long_press": '"long_press", "coordinate": [%(x)s, %(y)s]',
    "swipe": '"swipe", "direction": "%(word)s", "coordinate": [%(x)s, %(y)s]',
    "wait": '"wait"',
    **{name: f'"system_button", "button": "{name}"' for name in _BUTTONS.values()},
    "impossible": '"terminate", "status": "fail"',
}


_AS_WRITTEN = Form(_call, _READS, _WRITES, json_text, around=_AROUND)
_TO_999 = replace(_AS_WRITTEN, scale=Scale(999, 999, counts=(2, 4)))


class Qwen25Settings(PixelSettings):
    """Qwen2.5-VL."""

    name: Literal["qwen25_mobile_use"] = "qwen25_mobile_use"
    FORM: ClassVar[Form] = _AS_WRITTEN


class Qwen3Settings(ReleasedSettings):
    """Qwen3-VL, 0 to 999."""

    name: Literal["qwen3_mobile_use"] = "qwen3_mobile_use"
    FORM: ClassVar[Form] = _TO_999


class GuiOwlSettings(PixelSettings):
    """GUI-Owl 7B and 32B, Mobile-Agent-v3; limits as in GUIEvalKit (the authors' own: 1 to 12,800 tokens)."""

    name: Literal["gui_owl"] = "gui_owl"
    FORM: ClassVar[Form] = _AS_WRITTEN
    max_pixels: int = 10_035_200


class GuiOwl15Settings(ReleasedSettings):
    """GUI-Owl 1.5, 0 to 1000."""

    name: Literal["gui_owl15"] = "gui_owl15"
    FORM: ClassVar[Form] = _AS_WRITTEN


class MaiUiSettings(DisputedSettings):
    """MAI-UI, 0 to 999."""

    name: Literal["mai_ui"] = "mai_ui"
    FORM: ClassVar[Form] = replace(
        _TO_999,
        reads=_READS
        | {"swipe": worded("direction", "coordinate"), "drag": stroke(("start_coordinate",), ("end_coordinate",))},
        writes=_MAI_WRITES,
        start_and_word=True,
    )
