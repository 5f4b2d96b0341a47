"""One agent on one task, on a phone of its own, with a trace.

OUT/<run>/00012/              the trace (see `vlm_agent/datasets/sources/traces.py`)
OUT/<run>/00012/result.json   written last: the task is finished
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vlm_agent.agents import Agent
from vlm_agent.agents.read_screens import ScreenReader
from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import Heading
from vlm_agent.devices.acting.around import ReadElements, long_screen
from vlm_agent.devices.acting.episode import episode_turns
from vlm_agent.devices.acting.guard import Guard
from vlm_agent.devices.acting.loop import Turns, answered
from vlm_agent.devices.task_sets import SetTask
from vlm_agent.episodes import Action
from vlm_agent.errors import DatasetError
from vlm_agent.files import read_checked, write_checked

RESULT = "result.json"

Player = Callable[[Sequence[Action]], Agent]
"""Returns the agent for a task. Only the expert uses the argument, the expert's actions."""

EXPERT, AT_ONCE = "expert", "complete_at_once"
BASELINES: dict[str, Player] = {EXPERT: ScriptedAgent, AT_ONCE: lambda _: ScriptedAgent((Action.complete(),))}
"""The upper and the lower bound of every result: the expert, and an agent that does nothing."""


def play(run: str, player: Player, task: SetTask, folder: Path, *options: Any, **named: Any) -> dict:
    """Runs the agent on the task and returns the content of `result.json`. `options`: those of `task_turns`."""
    solution = task.solution()
    agent = player(() if solution is None else solution.actions)
    return answered(task_turns(run, task, folder, *options, **named), agent)


def task_turns(
    run: str,
    task: SetTask,
    folder: Path,
    long_screens: bool = False,
    reader: ScreenReader | None = None,
    name: str | None = None,
    allow_purchases: bool = True,
) -> Turns[dict]:
    """`play` without an agent: the caller answers. Empties `folder` first.

    `long_screens`: the agent sees each page as one tall picture. The baselines never do: their actions are those on
    the phone's screen. `reader`: the elements of screens, but for baselines, are read from pixels. `name`: of the agent
    in the trace, by default the run. `allow_purchases`: see `TaskSet`.

    The result has the fields of `Outcome` and `Ending`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    long_screens = long_screens and run not in BASELINES
    with task.open() as opened:
        # Without address and size, a trace cannot be replayed: actions on a tall picture are not those on the screen.
        can_replay = opened.replay_address is not None and not long_screens
        replay = (opened.replay_address, opened.device.size) if can_replay else (None, None)
        heading = Heading(f"{run} {task.name}", task.goal, name or run, opened.name, task.subset, *replay)
        with TraceWriter(folder, heading) as trace:
            guard = Guard(allow_purchases=allow_purchases, launcher=opened.launcher, reads_pixels=reader is not None)
            device = opened.device
            device = device if reader is None or run in BASELINES else ReadElements(device, reader)
            device = long_screen(device, task.goal, trace, guard) if long_screens else device
            ending, outcome = yield from episode_turns(opened, trace, guard, task.solution(), device)
    about = {key: getattr(task, key) for key in ("subset", "template", "memory", "goal")}
    result = {"task": task.name, **about, **asdict(outcome), **asdict(ending)}
    del result["ended"]  # the same as "reason"
    write_checked(folder / RESULT, result)
    return result


@dataclass
class _Result:
    """What `result.json` must hold for the scores."""

    task: str
    subset: str
    template: str
    memory: bool
    goal: str
    reached: bool | None
    success: bool | None
    ever_reached: bool | None
    false_complete: bool | None
    side_effects: list[str] | None
    expert_steps: int | None
    reason: str
    steps: int
    unparsed: int
    tokens: tuple[int, int] | None
    seconds: dict[str, float]
    calls: int | None
    beyond_context: int


def is_done(folder: Path) -> bool:
    return (folder / RESULT).is_file()


def read_result(folder: Path, address: str) -> dict:
    """The result of a finished task. Raises DatasetError where its file is damaged, or is not of the task `address`."""
    remedy = "remove it and run the same command again to repeat the task"
    result: dict = read_checked(folder / RESULT, remedy, _Result)
    if len({result[key] is None for key in ("success", "reached", "false_complete")}) > 1:
        raise DatasetError(f"{folder / RESULT}: either success, reached and false_complete are null, or none; {remedy}")
    if result["task"] != address:
        raise DatasetError(f"{folder / RESULT} is of task {result['task']}, and the task here is {address}; {remedy}")
    return result
