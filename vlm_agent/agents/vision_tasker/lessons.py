"""Chats that teach a text model to answer this agent's prompts: the replies are the recorded actions.

A touch is written with the number of the smallest element under the finger, as the prompt shows it. A step whose touch
lies on no element is left out, because the model could not name it, and so is one of a kind without a reply, such as
opening an app. Histories are the recorded actions in the agent's own words.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vlm_agent.agents.agent import Answer, Turn
from vlm_agent.agents.lessons import Lesson, lesson
from vlm_agent.agents.llm.replies import UnreadReplyError
from vlm_agent.agents.vision_tasker.shown import ShownScreen
from vlm_agent.episodes import BUTTONS, Action, ActionKind, Episode, is_same_screen, recorded_screen

if TYPE_CHECKING:
    from vlm_agent.agents.vision_tasker.agent import VisionTaskerAgent


def lessons_of(agent: "VisionTaskerAgent", episodes: Iterable[Episode], demonstrated: float = 0.0) -> Iterator[Lesson]:
    """A lesson for each step that can be named. `demonstrated`: the share of episodes whose prompts have the agent's
    demonstration, 0 to 1."""
    for episode in episodes:
        nearest = agent.nearest if _place(episode) < demonstrated else None
        example = None if nearest is None else nearest(episode.goal)
        history: list[Turn] = []
        for number, step in enumerate(episode.steps):
            screen = recorded_screen(episode, number)
            if history:
                history[-1] = replace(history[-1], changed=not is_same_screen(history[-1].screen, screen))
            shown = agent.show(screen)
            reply = reply_of(step.action, shown)
            answer = Answer("", step.action)
            if reply is not None:
                try:
                    answer = agent.read(reply, shown)
                    yield lesson(agent.messages(episode.goal, history, shown, example), reply)
                except UnreadReplyError:  # the element is covered by others, so its number cannot be touched
                    reply = None
            history.append(Turn(screen, answer, step.action, answer.notes))


def _place(episode: Episode) -> float:
    """In [0, 1), uniform over ids: the same for an episode whichever others are read beside it."""
    digest = hashlib.sha256(f"demonstration {episode.id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def reply_of(action: Action, shown: ShownScreen) -> str | None:
    """The reply that means a recorded action on a screen; None for a touch on no element, and for kinds of actions that
    the agent does not have."""
    content = _content(action, shown)
    return None if content is None else json.dumps(content, ensure_ascii=False)


def _content(action: Action, shown: ShownScreen) -> dict[str, Any] | None:
    if action.is_touch:
        number = shown.at(action.touch_yx)
        name = "tap" if action.is_tap else "long_press"
        return None if number is None else {"action": name, "element": number}
    if action.is_swipe:
        return {"action": "swipe", "direction": action.direction}
    if action.kind is ActionKind.TYPE:
        return {"action": "enter_text", "text": action.text}
    if action.name in BUTTONS:
        return {"action": "press", "key": action.name}
    if action.is_status:
        return {"action": "stop", "result": "done" if action == Action.complete() else "impossible"}
    return None
