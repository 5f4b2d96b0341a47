"""What VisionTasker could complete with a planner that always names the right element, on screens read from pixels.

    PYTHONPATH=.:tests python -m studies.vision_tasker.oracle [--tasks 25] [--output DIR]

The expert solves each task through the agent: every action becomes the reply that means it on the screen as read, and
what the agent reads from that reply is performed. A task whose target was not read has no solution. A server then
answers the agent's prompts with these replies, by goal, screen and number of earlier actions, in
`vlm-agent evaluate --online`. Success is the ceiling of any planner. Prints it with its interval, as JSON.
"""

import argparse
import json
import math
import random
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from helpers.agents.chat_server import Reply, serving

from vlm_agent.agents.loading import agent_settings
from vlm_agent.agents.vision_tasker.agent import VisionTaskerAgent, reply_of
from vlm_agent.agents.vision_tasker.shown import ShownScreen
from vlm_agent.cli import main as vlm_agent
from vlm_agent.episodes import Action, Screen
from vlm_agent.simulator.demonstrations import simulated_tasks
from vlm_agent.simulator.expert import Expert
from vlm_agent.simulator.opening import SimulatedTask
from vlm_agent.simulator.thoughts import Reason

SCALE = 2
"""OCR needs texts larger than the 8 pixels of simulated screens."""

_GIVE_UP = '{"action": "stop", "result": "impossible"}'
_ACTIONS = re.compile(r"^Actions so far:\n((?:[0-9]+\. .*\n)+)", re.MULTILINE)


class _UnnamedTargetError(RuntimeError):
    """The expert acts on what was not read."""


class _NamingExpert(Expert):
    """Acts through the agent's replies. `replies`: (screen in words, reply), by action."""

    agent: VisionTaskerAgent
    replies: list[tuple[str, str]]

    def _tap(self, key: str, reason: Reason) -> None:
        """On an element whose place is in the target's area, with the most centred one first."""
        left, top, right, bottom = self._show(key).hit
        height, width = self.phone.size
        shown = self._shown()
        middle = ((top + bottom) / 2 / height, (left + right) / 2 / width)
        places = {number: shown.place(number) for number in shown.numbers}
        reached = [
            (math.dist(place, middle), number)
            for number, place in places.items()
            if place is not None and top <= place[0] * height <= bottom and left <= place[1] * width <= right
        ]
        if not reached:
            raise _UnnamedTargetError
        self._reply(json.dumps({"action": "tap", "element": min(reached)[1]}), shown, reason)

    def _act(self, action: Action, reason: Reason) -> None:
        shown = self._shown()
        reply = reply_of(action, shown)
        if reply is None:
            raise _UnnamedTargetError
        if action.is_swipe:
            from_elements = [json.dumps(json.loads(reply) | {"element": number}) for number in shown.numbers]
            reply = min([reply, *from_elements], key=lambda one: self._distance(one, shown, action))
        self._reply(reply, shown, reason)

    def _shown(self) -> ShownScreen:
        return self.agent.show(Screen(self.phone.screenshot()))

    def _distance(self, reply: str, shown: ShownScreen, swipe: Action) -> float:
        """The distance of the swipe that the agent reads from `swipe`, the sum over touch and lift."""
        read = self.agent.read(reply, shown).action
        if read is None or read.direction != swipe.direction:
            return math.inf
        return math.dist(read.touch_yx, swipe.touch_yx) + math.dist(read.lift_yx, swipe.lift_yx)

    def _reply(self, reply: str, shown: ShownScreen, reason: Reason) -> None:
        understood = self.agent.read(reply, shown).action
        if understood is None:
            raise _UnnamedTargetError
        self.replies.append((shown.description, reply))
        super()._act(understood, reason)


@dataclass
class Oracle:
    """Answers prompts. `known`: the replies of each goal's tasks; the goal occurs on several phones."""

    known: dict[str, list[list[tuple[str, str]]]] = field(default_factory=dict)

    def learn(self, task: SimulatedTask, agent: VisionTaskerAgent) -> None:
        phone, goal = task.fresh_phone()
        expert = _NamingExpert(phone, random.Random(goal.seed), pixels=False)
        expert.agent, expert.replies = agent, []
        try:
            expert.follow(goal._goal.script)
        except RuntimeError:  # a target that was not read, or a loop of gestures that find nothing
            return
        self.known.setdefault(goal.goal, []).append(expert.replies)

    def __call__(self, number: int, body: dict) -> Reply:
        text = body["messages"][-1]["content"]
        goal = re.match(r"Task: (.*)\n", text)[1]
        earlier = _ACTIONS.search(text)
        place = 0 if earlier is None else len(earlier[1].splitlines())
        for replies in self.known.get(goal, ()):
            if place < len(replies) and replies[place][0] in text:
                return Reply(replies[place][1])
        return Reply(_GIVE_UP)


def online_row(tasks: int, folder: Path) -> dict:
    """The overall row of `online.json` for the first `tasks` tasks of seed 0. Texts of screens are kept in `folder`."""
    oracle, path = Oracle(), folder / "agent.yaml"
    settings = {"agent": "vision_tasker", "endpoint": "http://localhost:1/v1", "model": "oracle"}
    settings["readers"] = {"text": {"name": "rapidocr", "cache": str(folder / "ocr")}}
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    agent = agent_settings(path).in_output(folder).load()
    for task in simulated_tasks(tasks, 0, scale=SCALE):
        oracle.learn(task, agent)
    with serving(oracle, ("oracle",)) as (url, _):
        path.write_text(yaml.safe_dump(settings | {"endpoint": url}), encoding="utf-8")
        output = folder / "online"
        command = ["evaluate", "--online", "--agent", str(path), "--tasks", str(tasks), "--scale", str(SCALE)]
        if vlm_agent([*command, "--controls", "none", "--output", str(output)]):
            raise RuntimeError(f"the evaluation failed; see {output}")
    return json.loads((output / "online.json").read_text(encoding="utf-8"))["runs"]["trained"]["overall"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=25, metavar="N")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        print(json.dumps(online_row(options.tasks, options.output or Path(temporary))))


if __name__ == "__main__":
    main()
