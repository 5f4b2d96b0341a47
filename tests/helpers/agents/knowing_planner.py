"""A program behind a chat endpoint that knows every screen of some online tasks, and reads nothing but its prompts."""

import base64
import hashlib
import json
import random
import re
from collections import defaultdict
from dataclasses import dataclass, field

from helpers.agents.chat_server import Reply

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.datasets.shards.schema import decode_screen
from vlm_agent.episodes import Screen
from vlm_agent.simulator.expert import Expert
from vlm_agent.simulator.opening import SimulatedTask

_STATUS_BAR = 20


class _SayingExpert(Expert):
    """An expert whose every action is what the action language can say of it."""

    language: ActionLanguage

    def _act(self, action, reason) -> None:
        screen = Screen(None, self.phone.elements())
        super()._act(self.language.decode(self.language.encode(action, screen), screen), reason)


@dataclass
class KnownTask:
    """`steps`: (picture, action as text) of a solution; empty if the language cannot say one."""

    memory: bool
    steps: list[tuple[str, str]] = field(default_factory=list)

    @property
    def needs_memory(self) -> bool:
        """Whether one picture asks for two different actions."""
        by_picture: dict[str, set[str]] = defaultdict(set)
        for picture, action in self.steps:
            by_picture[picture].add(action)
        return any(len(actions) > 1 for actions in by_picture.values())


def know(task: SimulatedTask, language: ActionLanguage) -> tuple[str, KnownTask]:
    """(goal, what is known of the task)"""
    phone, goal = task.fresh_phone()
    expert = _SayingExpert(phone, random.Random(goal.seed))
    expert.language = language
    known = KnownTask(goal.memory)
    try:
        steps = expert.follow(goal._goal.script)
    except RuntimeError:
        return goal.goal, known
    if goal.reached(phone):
        known.steps = [
            (_picture(step.screenshot), language.encode(step.action, Screen(None, step.elements))) for step in steps
        ]
    return goal.goal, known


@dataclass
class KnowingPlanner:
    """Reads goal, picture and earlier steps of a prompt. The place in the solution is the number of earlier steps;
    without memory, the first place with that picture."""

    tasks: dict[str, list[KnownTask]]
    give_up: str

    def __call__(self, number: int, body: dict) -> Reply:
        opening, message = body["messages"][0]["content"], body["messages"][-1]["content"]
        text, url = message[0]["text"], message[1]["image_url"]["url"]
        if (step := re.search(r"^To be done now: (.*)$", text, re.MULTILINE)) is not None:
            return Reply(step[1].partition(" means ")[2])
        goal = re.match(r"Goal: (.*)\n", text)[1]
        earlier = re.search(r"^Steps so far:\n((?:[0-9]+\. .*\n)+)", text, re.MULTILINE)
        picture = _picture(decode_screen(base64.b64decode(url.partition(",")[2])))
        plans = "Write a plan" in opening
        place = 0 if earlier is None else len(earlier[1].splitlines())
        action = self._at(goal, picture, place if plans else None)
        if not plans:
            return Reply(action)
        return Reply(json.dumps({"plan": "1. an action", "step": f"action {place} means {action}"}))

    def _at(self, goal: str, picture: str, place: int | None) -> str:
        for task in self.tasks[goal]:
            for number, (shown, action) in enumerate(task.steps):
                if shown == picture and place in (None, number):
                    return action
        return self.give_up


def _picture(pixels) -> str:
    """Without the status bar, which has a clock."""
    return hashlib.sha256(pixels[len(pixels) // _STATUS_BAR :].tobytes()).hexdigest()
