"""Tasks, and one agent on one of them, on a phone of its own.

The tasks are the test split that `simulate` records with the same seed, in the same order: offline and online
evaluation score an agent on the same goals and phones.

OUT/<run>/00012/              the trace (see `vlm_agent/datasets/sources/traces.py`)
OUT/<run>/00012/result.json   written last: the task is finished
"""

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from vlm_agent.agents import Agent
from vlm_agent.agents.read_screens import ScreenReader
from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import Heading
from vlm_agent.devices import Device
from vlm_agent.devices.acting.around import ReadElements, long_screen
from vlm_agent.devices.acting.guard import Guard
from vlm_agent.devices.acting.loop import Limits, Turns, answered, turns
from vlm_agent.episodes import Action
from vlm_agent.errors import DatasetError
from vlm_agent.files import read_checked, write_checked
from vlm_agent.simulator import SimulatedPhone, Task, sample_task
from vlm_agent.simulator.apps.launcher import LAUNCHER
from vlm_agent.simulator.demonstrations import SIZE, device_type, phone_seed, subset_of

SPLIT = "test"


@dataclass(frozen=True)
class OnlineTask:
    """Task number `index`, from 0, of a seed. `phone_seed` is the seed of its phone and goal, `size` (height,
    width) that of the screen in pixels. Screenshots are rendered at `scale` times the size, with the same layout."""

    index: int
    phone_seed: int
    size: tuple[int, int] = SIZE
    scale: int = 1

    @property
    def task(self) -> Task:
        return sample_task(subset_of(self.phone_seed), SPLIT, self.phone_seed)

    def fresh_phone(self) -> tuple[SimulatedPhone, Task]:
        """A new phone at the start of the task; every call returns the same phone, pixel by pixel."""
        phone, task = SimulatedPhone(self.phone_seed, self.size, scale=self.scale), self.task
        task.set_up(phone)
        return phone, task


def online_tasks(count: int, seed: int, size: tuple[int, int] = SIZE, scale: int = 1) -> list[OnlineTask]:
    """The first `count` tasks of a seed; a larger count only adds tasks."""
    return [OnlineTask(index, phone_seed((seed << 32) + index, SPLIT), size, scale) for index in range(count)]


def address_of(task: Task) -> str:
    """The task's name for `vlm-agent phone --task` and `vlm-agent act --device simulated:`."""
    return f"{task.subset}/{task.split}/{task.seed}"


RESULT = "result.json"

Player = Callable[[Sequence[Action]], Agent]
"""Returns the agent for a task. Only the expert uses the argument, the expert's actions."""

EXPERT, AT_ONCE = "expert", "complete_at_once"
BASELINES: dict[str, Player] = {
    EXPERT: ScriptedAgent,
    AT_ONCE: lambda _: ScriptedAgent((Action.complete(),)),
}
"""The upper and the lower bound of every result: the expert, and an agent that does nothing."""


def allowed_steps(expert_steps: int) -> int:
    """The step limit of an agent: enough for detours, too few for trying everything."""
    return 2 * expert_steps + 4


@dataclass(frozen=True)
class Solution:
    """The expert's actions on a task, and what lasts on the phone (`SimulatedPhone.durable`) before and after them."""

    actions: tuple[Action, ...]
    start: Counter[str]
    end: Counter[str]


@lru_cache(maxsize=1024)
def solution_of(task: OnlineTask) -> Solution:
    """Computed once for all runs of an evaluation: the expert looks at as many screens as an agent."""
    phone, goal = task.fresh_phone()
    start = phone.durable()
    return Solution(tuple(step.action for step in goal.solve(phone, pixels=False)), start, phone.durable())


def play(run: str, player: Player, task: OnlineTask, folder: Path, *options: Any, **named: Any) -> dict:
    """Runs the agent on the task and returns the content of `result.json`. `options`: those of `task_turns`."""
    solution = solution_of(task)
    return answered(task_turns(run, solution, task, folder, *options, **named), player(solution.actions))


def task_turns(
    run: str,
    solution: Solution,
    task: OnlineTask,
    folder: Path,
    long_screens: bool = False,
    reader: ScreenReader | None = None,
    name: str | None = None,
) -> Turns[dict]:
    """`play` without an agent: the caller answers. Empties `folder` first.

    `long_screens`: the agent sees each page as one tall picture. The baselines never do: their actions are those on
    the phone's screen. `reader`: the elements of screens, but for baselines, are read from pixels. `name`: of the agent
    in the trace, by default the run.

    `reached`: the phone was in the goal's state when the run ended. `success`: in addition, the agent declared the same
    end as the expert (complete or impossible). `false_complete`: the agent declared the task complete without success.
    `side_effects`: see `side_effects`. `expert_steps`: length of the expert's solution.
    """
    shutil.rmtree(folder, ignore_errors=True)
    phone, goal = task.fresh_phone()
    address = address_of(goal)
    long_screens = long_screens and run not in BASELINES
    # Without address and size, a trace cannot be replayed: actions on a tall picture are not actions on the screen.
    replay = (None, None) if long_screens else (address, phone.size)
    heading = Heading(
        f"{run} {address}", goal.goal, run if name is None else name, device_type(phone.size), goal.subset, *replay
    )
    limits = Limits(allowed_steps(len(solution.actions)))
    with TraceWriter(folder, heading) as trace:
        guard = Guard(allow_purchases=True, launcher=LAUNCHER)  # nothing can be bought on a simulated phone
        device: Device = phone if reader is None or run in BASELINES else ReadElements(phone, reader)
        device = long_screen(device, goal.goal, trace, guard) if long_screens else device
        ending = yield from turns(device, goal.goal, trace, guard, limits)
        reached = goal.reached(phone)
        trace.judged(reached)
    success = reached and ending.reason == solution.actions[-1].name
    result = {
        "task": address,
        "subset": goal.subset,
        "template": goal.template,
        "memory": goal.memory,
        "goal": goal.goal,
        "reached": reached,
        "success": success,
        "false_complete": ending.reason == Action.complete().name and not success,
        "side_effects": side_effects(solution.start, solution.end, phone.durable()),
        "expert_steps": len(solution.actions),
        **asdict(ending),
    }
    write_checked(folder / RESULT, result)
    return result


def side_effects(start: Counter[str], solved: Counter[str], end: Counter[str]) -> list[str]:
    """What lasts at the `end` and neither at the `start` nor after the expert's solution (+), and the reverse (-): a
    line each. The arguments are from `SimulatedPhone.durable`."""
    added, lost = end - (start | solved), (start & solved) - end
    return [f"{sign} {line}" for sign, lines in (("+", added), ("-", lost)) for line in sorted(lines.elements())]


@dataclass
class _Result:
    """What `result.json` must hold for the scores."""

    task: str
    subset: str
    template: str
    memory: bool
    goal: str
    reached: bool
    success: bool
    false_complete: bool
    side_effects: list[str]
    expert_steps: int
    reason: str
    steps: int
    unparsed: int
    tokens: tuple[int, int] | None
    seconds: dict[str, float]
    calls: int | None = None
    beyond_context: int = 0


def is_done(folder: Path) -> bool:
    return (folder / RESULT).is_file()


def read_result(folder: Path, address: str) -> dict:
    """The result of a finished task. Raises DatasetError where its file is damaged, or is not of the task `address`."""
    remedy = "remove it and run the same command again to repeat the task"
    result: dict = read_checked(folder / RESULT, remedy, _Result)
    if result["task"] != address:
        raise DatasetError(f"{folder / RESULT} is of task {result['task']}, and the task here is {address}; {remedy}")
    return result
