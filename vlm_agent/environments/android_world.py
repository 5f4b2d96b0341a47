"""Agents of this package on AndroidWorld: `PhoneAgent` is one of its `EnvironmentInteractingAgent`s.

The facts are from google-research/android_world at d9c569f. Three of them are unlike the phones of this package:

- Its swipes have a direction and no points, and move the finger across the middle of the screen; with `left` it moves
  to the right, and the reverse. `PhoneAgent` keeps both points: it sends the command that AndroidWorld's own scrolling
  sends to the phone.
- After `input_text` it presses the enter key.
- It has no action that shows the apps used last, so `RECENTS` is an action that the phone did not perform.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vlm_agent.agents import Agent, NoAnswerError, Turn
from vlm_agent.episodes import Action, ActionKind, Screen, UiElement, is_same_screen
from vlm_agent.errors import UserError

try:
    from android_world.agents.base_agent import AgentInteractionResult, EnvironmentInteractingAgent
    from android_world.env import adb_utils
    from android_world.env.json_action import JSONAction
except ImportError as error:
    line = "pip install git+https://github.com/google-research/android_world"
    raise UserError(f"the agent needs AndroidWorld ({error}); {line}") from error

_LOG = logging.getLogger(__name__)

SWIPE_MS = 500
_NOTHING = np.empty(0)
_APP = re.compile(r"\w[\w .+-]*")
_DIRECTIONS = {"up": "up", "down": "down", "left": "right", "right": "left"}
"""Direction of the finger → AndroidWorld's word for it."""

_FIXED = {
    ActionKind.PRESS_BACK: {"action_type": "navigate_back"},
    ActionKind.PRESS_HOME: {"action_type": "navigate_home"},
    ActionKind.PRESS_ENTER: {"action_type": "keyboard_enter"},
    ActionKind.WAIT: {"action_type": "wait"},
    ActionKind.STATUS_TASK_COMPLETE: {"action_type": "status", "goal_status": "complete"},
    ActionKind.STATUS_TASK_IMPOSSIBLE: {"action_type": "status", "goal_status": "infeasible"},
}
_TEXTS = {
    ActionKind.TYPE: ("input_text", "text"),
    ActionKind.OPEN_APP: ("open_app", "app_name"),
    ActionKind.ANSWER: ("answer", "text"),
}


class PhoneAgent(EnvironmentInteractingAgent):
    """`agent` operates `env`, AndroidWorld's `AsyncEnv`; `name` and `transition_pause` (seconds) are AndroidWorld's.

    The `data` of a step: `answer`, the agent's text, and `action`, the JSONAction that was executed; None if the answer
    was not an action, or is one that AndroidWorld lacks.
    """

    def __init__(self, env: Any, agent: Agent, name: str = "vlm_agent", transition_pause: float | None = 1.0) -> None:
        super().__init__(env, name, transition_pause)
        self._agent = agent
        self._history: list[Turn] = []
        self._answers = self._episodes = 0
        self._unread = _NOTHING

    def reset(self, go_home: bool = False) -> None:
        """Begins an episode."""
        super().reset(go_home)
        self.env.hide_automation_ui()  # coordinates of touches, which would be part of the picture
        self._history, self._answers, self._unread = [], 0, _NOTHING
        self._episodes += 1

    def step(self, goal: str) -> AgentInteractionResult:
        """Asks the agent for one action and executes it; done if the agent declares the end. Raises NoAnswerError if
        the agent cannot answer."""
        state = self.get_post_transition_state()
        screen = self._screen(state)
        answer = self._agent.act(goal, tuple(self._history), screen)
        if answer.failed is not None:
            raise NoAnswerError(answer.failed)
        action = answer.action
        sent = None if action is None else json_action(action, self.env.logical_screen_size)
        self._answers += 1
        if action is None:
            done = np.array_equal(self._unread, state.pixels)  # the same question again
            self._unread = state.pixels
        else:
            failed = sent is None or not (action.is_status or self._executed(sent))
            self._history.append(Turn(screen, answer, action, answer.notes, failed=failed))
            done, self._unread = action.is_status, _NOTHING
        return AgentInteractionResult(done, {"answer": answer.text, "action": sent})

    def _screen(self, state: Any) -> Screen:
        """What the phone shows in `state`; notes whether the last action has changed it."""
        elements = elements_of(state.ui_elements, self.env.logical_screen_size)
        activity, episode = self.env.foreground_activity_name, f"android_world {self._episodes}"
        screen = Screen(state.pixels, elements, activity, episode=episode, step=self._answers)
        if self._history and not (last := self._history[-1]).failed:
            self._history[-1] = replace(last, changed=not is_same_screen(last.screen, screen))
        return screen

    def _executed(self, action: JSONAction) -> bool:
        """Whether AndroidWorld executed the action. Its suite leaves a task whose agent raised out of the score."""
        try:
            if action.action_type == "swipe":
                command = adb_utils.generate_swipe_command(*action.touch_xy, *action.lift_xy, SWIPE_MS)
                adb_utils.issue_generic_request(command, self.env.controller)
            else:
                self.env.execute_action(action)
        except Exception:  # noqa: BLE001 (of no common class, as in AndroidWorld's own agents)
            _LOG.warning("AndroidWorld did not execute %s", action, exc_info=True)
            return False
        return True


def json_action(action: Action, size: tuple[int, int]) -> JSONAction | None:
    """The action in AndroidWorld's form; `size`: its (width, height) of the screen in pixels. None for RECENTS, and for
    an app's name that AndroidWorld's shell command might read as more than a name.

    A swipe has two attributes that JSONAction does not declare, `touch_xy` and `lift_xy`: (x, y) in pixels.
    """
    if action.kind in _FIXED:
        return JSONAction(**_FIXED[action.kind])
    if action.kind == ActionKind.OPEN_APP and not _APP.fullmatch(action.text):
        return None
    if action.kind in _TEXTS:
        kind, key = _TEXTS[action.kind]
        return JSONAction(**{"action_type": kind, key: action.text})
    if action.is_touch:
        x, y = _pixel(action.touch_yx, size)
        return JSONAction(action_type="click" if action.is_tap else "long_press", x=x, y=y)
    if action.direction is None:
        return None
    swipe = JSONAction(action_type="swipe", direction=_DIRECTIONS[action.direction])
    swipe.touch_xy, swipe.lift_xy = _pixel(action.touch_yx, size), _pixel(action.lift_yx, size)
    return swipe


def elements_of(found: Sequence[Any], size: tuple[int, int]) -> tuple[UiElement, ...]:
    """AndroidWorld's elements on the screen with a text or a description, as an ADB phone of this package has them.
    `size`: (width, height) in pixels."""
    elements = []
    for one in found:
        text, box = (one.text or one.content_description or "").strip(), one.bbox_pixels
        if not text or box is None or one.is_visible is False:
            continue
        left, right = (min(max(x, 0), size[0]) / size[0] for x in (box.x_min, box.x_max))
        top, bottom = (min(max(y, 0), size[1]) / size[1] for y in (box.y_min, box.y_max))
        if left < right and top < bottom:
            elements.append(UiElement((top, left, bottom - top, right - left), text))
    return tuple(elements)


def _pixel(yx: tuple[float, float], size: tuple[int, int]) -> tuple[int, int]:
    """The (x, y) pixel of a point in screen fractions."""
    return min(int(yx[1] * size[0]), size[0] - 1), min(int(yx[0] * size[1]), size[1] - 1)
