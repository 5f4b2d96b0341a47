"""One agent on one task: played on a phone of its own, and judged.

OUT/<run>/00012/              the trace (see `vlm_agent/datasets/traces.py`)
OUT/<run>/00012/result.json   written last: the task is done
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.agents import Agent, Answer
from vlm_agent.agents.acting import Limits, act
from vlm_agent.agents.guard import Guard
from vlm_agent.datasets import written_whole
from vlm_agent.datasets.trace_writer import TraceWriter
from vlm_agent.datasets.traces import Heading
from vlm_agent.episodes import Action, Step
from vlm_agent.evaluation.online.tasks import OnlineTask, address_of

RESULT = "result.json"

_LANGUAGE = BinnedLanguage()


@dataclass(frozen=True)
class Scripted:
    """An agent that does these actions in turn, whatever it sees, and then the last of them for ever."""

    actions: Sequence[Action]

    def act(self, goal: str, history: Sequence[Step], screenshot: np.ndarray) -> Answer:
        action = self.actions[min(len(history), len(self.actions) - 1)]
        return Answer(_LANGUAGE.render(action), action)


Player = Callable[[Sequence[Action]], Agent]
"""Gives the agent for a task, from the expert's actions, which only the expert looks at."""

EXPERT, AT_ONCE = "expert", "complete_at_once"
BASELINES: dict[str, Player] = {
    EXPERT: Scripted,
    AT_ONCE: lambda _: Scripted((Action.complete(),)),
}
"""What every result stands beside: what can be reached, and what is reached by doing nothing."""


def allowed_steps(expert_steps: int) -> int:
    """After how many an agent is stopped: time for detours, not for trying everything."""
    return 2 * expert_steps + 4


def play(run: str, player: Player, task: OnlineTask, folder: Path) -> dict:
    """Has the agent do the task, and returns what `result.json` then holds; what was in `folder` is removed.

    `reached`: the phone was as the goal asks when the run ended; `success`: and the agent itself had said the end, as
    the expert does (impossible, where it is). `expert_steps` are what the expert takes; `seconds` and `tokens` cost.
    """
    shutil.rmtree(folder, ignore_errors=True)
    rehearsal, same_task = task.fresh_phone()
    actions = [step.action for step in same_task.solve(rehearsal, pixels=False)]
    phone, goal = task.fresh_phone()
    address = address_of(goal)
    heading = Heading(
        f"{run} {address}",
        goal.goal,
        run,
        f"simulated_{phone.size[1]}x{phone.size[0]}",
        goal.subset,
        address,
        phone.size,
    )
    limits = Limits(allowed_steps(len(actions)))
    with TraceWriter(folder, heading) as trace:
        # Nothing can be bought on a simulated phone.
        ending = act(player(actions), phone, goal.goal, trace, Guard(allow_purchases=True), limits)
    reached = goal.reached(phone)
    result = {
        "task": address,
        "subset": goal.subset,
        "template": goal.template,
        "memory": goal.memory,
        "goal": goal.goal,
        "reached": reached,
        "success": reached and ending.reason == actions[-1].name,
        "expert_steps": len(actions),
        **asdict(ending),
    }
    with written_whole(folder / RESULT) as part:
        part.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return result


def read_result(folder: Path) -> dict | None:
    """None where the task is not done."""
    path = folder / RESULT
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
