"""Why the expert acts, in words: the notes `screen`, `think`, `action` and `result` of its steps.

    screen   clock home: Alarm, Timer, Stopwatch      texts.phone: from activity and elements, as an agent has them
    think    Browser is here, see ICON_GLOBE          from the expert's reason
    action   Tap on ICON_GLOBE                        from the action, and the element that it touches
    result   now at browser home: All, News           texts.phone: from this screen and the next

A thought names what a screen shows, never the key of a target: a touched element by its own name, and what the expert
looks for only while it is not visible. Words are those of the embedded base. `docs/data.md` says what a text may know.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vlm_agent.episodes import Action, ActionKind, Screen, Step, element_at
from vlm_agent.geometry import OPPOSITE
from vlm_agent.texts.phone import MAX_PIECES, pieces, result_text, screen_text

Cause = Literal["found", "hidden", "in the way", "elsewhere", "earlier", "field", "typed", "complete", "impossible"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the expert performs an action. `wants`: the name of what it is after, empty if that has no name.

    `found`: what it wants is visible. `hidden`: it is further in some direction. `elsewhere`: it is in another app.
    `earlier`: it is on the page before. `in the way`: the touched thing covers the page.
    """

    cause: Cause
    wants: str = ""


_THOUGHTS: dict[Cause, tuple[str, ...]] = {
    "found": ("{wants} is here, see {name}", "{name} is here"),
    "hidden": ("{wants} is not here, look {direction}", "{wants} is not here", "look {direction} for more"),
    "in the way": ("this is in the way, close it",),
    "elsewhere": ("{wants} is not here, go home", "next is the home screen"),
    "earlier": ("next is the page before",),
    "field": ("this field is for {wants}",),
    "typed": ("the text is in, enter it",),
    "complete": ("all is done now",),
    "impossible": ("{wants} is not here, stop", "this is impossible here"),
}
"""The templates of a cause, the most specific first; those after it are for what has no name or a long one."""

_ACTIONS = {
    ActionKind.PRESS_BACK: "Go back one page",
    ActionKind.PRESS_HOME: "Go to the home screen",
    ActionKind.PRESS_ENTER: "Enter the text",
    ActionKind.STATUS_TASK_COMPLETE: "Stop, the task is complete",
    ActionKind.STATUS_TASK_IMPOSSIBLE: "Stop, the task is impossible",
}


def name_of(key: str) -> str:
    """The words of a target's key: `app:Clock` → Clock, `view_cart` → view cart."""
    return key.partition(":")[2] or key.replace("_", " ")


def with_texts(steps: Sequence[Step], reasons: Sequence[Reason]) -> tuple[Step, ...]:
    """The steps with their texts; one reason a step. The last action, which ends the episode, changes no screen."""
    screens = [step.screen for step in steps]
    return tuple(
        replace(
            step,
            notes={
                "screen": screen_text(step.screen),
                "think": think_text(step, reason),
                "action": action_text(step),
                "result": result_text(step.screen, after),
            },
        )
        for step, reason, after in zip(steps, reasons, [*screens[1:], screens[-1]], strict=True)
    )


def think_text(step: Step, reason: Reason) -> str:
    """The thought that leads to the step's action (AT)."""
    name = _touched(step.action, step.screen)
    direction = OPPOSITE.get(step.action.direction or "", "")
    words = {"wants": _sayable(reason, name, step.screen), "name": name, "direction": direction}
    templates = [text for text in _THOUGHTS[reason.cause] if all(words[key] for key in words if f"{{{key}}}" in text)]
    texts = [template.format(**words) for template in templates]
    return next((text for text in texts if pieces(text) <= MAX_PIECES), texts[-1])


def action_text(step: Step) -> str:
    """The description of the step's action and of the element that it touches (AD)."""
    action = step.action
    if action.is_tap:
        return f"Tap on {_touched(action, step.screen)}"
    if action.is_swipe:
        return f"Swipe {action.direction} on this page"
    return f"Type the text {action.text}" if action.kind is ActionKind.TYPE else _ACTIONS[action.kind]


def _touched(action: Action, screen: Screen) -> str:
    """The name of the element under the finger; empty if there is none."""
    element = element_at(screen.elements or (), action.touch_yx)
    return "" if element is None else " ".join(element.name.split())


def _sayable(reason: Reason, touched: str, screen: Screen) -> str:
    """What the expert wants, as far as the thought is true of the screen; else empty.

    What is found must be visible, beside the touched element, and what is hidden must not.
    """
    # As the screen writes it, in any case of letters.
    texts = (element.text for element in screen.elements or ())
    visible = next((text for text in texts if text.casefold() == reason.wants.casefold()), "")
    if reason.cause == "found":
        return "" if reason.wants.casefold() == touched.casefold() else visible
    return "" if reason.cause in ("hidden", "impossible") and visible else reason.wants
