"""The prompts of agent `vision_tasker`, a YAML file for each language, and the actions so far in their words."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import ClassVar, Literal

from vlm_agent.agents.agent import Turn
from vlm_agent.agents.llm.prompts import PromptFile
from vlm_agent.agents.vision_tasker.calls import Call, Problem
from vlm_agent.agents.vision_tasker.shown import PromptLanguage, Shown, ShownScreen
from vlm_agent.episodes import BUTTONS, Action, ActionKind, Screen
from vlm_agent.texts.lines import one_line

PROMPTS: dict[PromptLanguage, Path] = {
    "en": Path(__file__).with_name("prompts_en.yaml"),
    "zh": Path(__file__).with_name("prompts_zh.yaml"),
}


class VisionTaskerPrompts(PromptFile):
    """The keys of `prompts_en.yaml`, which explains them."""

    PLACEHOLDERS: ClassVar[dict[str, set[str]]] = {
        "system": {"screen"},
        "examples": {"examples"},
        "example": {"goal", "actions"},
        "repair": {"reason"},
        "absent": {"element", "available"},
        "ambiguous": {"element", "available"},
        "line_enter_text": {"text", "element"},
        "line_type": {"text"},
        "line_swipe": {"direction"},
        "line_swipe_on": {"direction", "element"},
        "line_swipe_to": {"direction", "target"},
        "line_press": {"key"},
        "line_open": {"app"},
        "line_numbered": {"line", "number"},
        **{name: {"element"} for name in ("line_tap", "line_long_press")},
        **{name: {name} for name in ("goal", "actions", "unchanged", "words", "html")},
    }

    system: str
    screens: dict[Shown, str]
    goal: str
    examples: str
    example: str
    actions: str
    no_effect: str
    unchanged: str
    words: str
    html: str
    marks: str
    no_elements: str
    question: str
    repair: str
    absent: str
    ambiguous: str
    problems: dict[Problem, str]
    line_tap: str
    line_long_press: str
    line_enter_text: str
    line_type: str
    line_and_enter: str
    line_swipe: str
    line_swipe_on: str
    line_swipe_to: str
    line_press: str
    line_numbered: str
    directions: dict[Literal["up", "down", "left", "right"], str]
    keys: dict[Literal["back", "home", "enter"], str]
    line_done: str
    line_impossible: str
    line_open: str
    line_other: str
    a_place: str


def call_line(prompts: VisionTaskerPrompts, call: Call, element: str) -> str:
    """A call in words. `element`: the name of the element that it names, empty without one."""
    if call.action == "tap":
        return prompts.fill("line_tap", element=element)
    if call.action == "long_press":
        return prompts.fill("line_long_press", element=element)
    if call.action == "enter_text":
        text = one_line(call.text)
        line = prompts.fill("line_enter_text", text=text, element=element) if element else _type_line(prompts, text)
        return line + prompts.line_and_enter if call.enter else line
    if call.action == "swipe":
        return _swipe_line(prompts, call.direction, element, call.then_tap)
    if call.action == "press":
        return _key_line(prompts, call.key)
    return prompts.line_done if call.is_done else prompts.line_impossible


def action_line(prompts: VisionTaskerPrompts, action: Action, shown: Callable[[], ShownScreen]) -> str:
    """Any action in words. `shown`: its screen, which is only read for a touch."""
    if action.direction is not None:
        return _swipe_line(prompts, action.direction)
    if action.is_touch:
        screen = shown()
        number = screen.at(action.touch_yx)
        element = prompts.a_place if number is None else screen.names[number]
        return prompts.fill("line_tap" if action.is_tap else "line_long_press", element=element)
    if action.name in BUTTONS:
        return _key_line(prompts, action.name)
    if action.is_status:
        return prompts.line_done if action == Action.complete() else prompts.line_impossible
    if action.kind is ActionKind.OPEN_APP:
        return prompts.fill("line_open", app=one_line(action.text))
    return _type_line(prompts, one_line(action.text)) if action.text else prompts.line_other


def history_lines(
    prompts: VisionTaskerPrompts, history: Sequence[Turn], show: Callable[[Screen], ShownScreen]
) -> list[str]:
    """A line for each earlier answer of the agent, whatever actions it took, and for each demonstrated action.

    The line of an answer after which the screen was the same says so.
    """
    return [
        _line(prompts, turns, show) + (f" {prompts.no_effect}" if _changed_nothing(turns) else "")
        for turns in _calls(history)
    ]


def lines_without_effect(
    prompts: VisionTaskerPrompts, history: Sequence[Turn], shown: ShownScreen, show: Callable[[Screen], ShownScreen]
) -> list[str]:
    """The agent's last answers since which the screen has not changed, with the number that a touched element has now;
    none if the last one changed it. `shown`: the current screen."""
    lines: list[str] = []
    for turns in takewhile(_changed_nothing, reversed(_calls(history))):
        action, line = turns[0].action, _line(prompts, turns, show)
        number = shown.at(action.touch_yx) if action.is_touch else None
        lines.insert(0, line if number is None else prompts.fill("line_numbered", line=line, number=str(number)))
    return lines


def _calls(history: Sequence[Turn]) -> list[list[Turn]]:
    """The turns of each answer of the model. A demonstrated action is by itself."""
    calls: list[list[Turn]] = []
    for turn in history:
        if turn.answer is not None and turn.answer.diagnostics.part and calls:
            calls[-1].append(turn)
        else:
            calls.append([turn])
    return calls


def _changed_nothing(turns: Sequence[Turn]) -> bool:
    return all(turn.changed is False for turn in turns)


def _line(prompts: VisionTaskerPrompts, turns: Sequence[Turn], show: Callable[[Screen], ShownScreen]) -> str:
    """The agent's own words for an answer; without any, those of its first action."""
    own = [one_line(turn.notes["action"]) for turn in turns if turn.answer is not None and "action" in turn.notes]
    if any(own):
        return ", ".join(filter(None, own))
    return action_line(prompts, turns[0].action, lambda: show(turns[0].screen))


def _swipe_line(prompts: VisionTaskerPrompts, direction: str, element: str = "", name: str = "") -> str:
    towards = prompts.directions[direction]  # type: ignore[index]
    if name:
        return prompts.fill("line_swipe_to", direction=towards, target=name)
    if element:
        return prompts.fill("line_swipe_on", direction=towards, element=element)
    return prompts.fill("line_swipe", direction=towards)


def _key_line(prompts: VisionTaskerPrompts, key: str) -> str:
    return prompts.fill("line_press", key=prompts.keys[key])  # type: ignore[index]


def _type_line(prompts: VisionTaskerPrompts, text: str) -> str:
    return prompts.fill("line_type", text=text)
