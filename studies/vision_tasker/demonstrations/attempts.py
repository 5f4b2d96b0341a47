"""One agent on one task of one phone, with its trace and its actions in words.

FOLDER/PHONES/ARM/00012/              the trace
FOLDER/PHONES/ARM/00012/result.json   written last: the attempt is finished
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

from rich.console import Console

from studies.vision_tasker.demonstrations.phones import Phones, Start
from vlm_agent.agents import Agent
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import Heading
from vlm_agent.devices.acting.demonstrating.lines import lines_of
from vlm_agent.devices.acting.demonstrating.observed import of_trace
from vlm_agent.devices.acting.episode import allowed_steps
from vlm_agent.devices.acting.guard import Guard
from vlm_agent.devices.acting.loop import Limits, act
from vlm_agent.files import read_json, write_json
from vlm_agent.files.console import Progress
from vlm_agent.simulator.expert import MAX_STEPS

EXPERT = "expert"
RESULT = "result.json"


@dataclass(frozen=True)
class Attempt:
    phones: Phones
    arm: str
    number: int
    output: Path

    @property
    def folder(self) -> Path:
        return self.output / self.phones.name.replace(" ", "_") / self.arm.replace(" ", "_") / f"{self.number:05d}"

    @property
    def is_done(self) -> bool:
        return (self.folder / RESULT).is_file()

    @cached_property
    def result(self) -> dict:
        return read_json(self.folder / RESULT, "remove it and run the same command again")

    def of_expert(self) -> "Attempt":
        return Attempt(self.phones, EXPERT, self.number, self.output)


@dataclass(frozen=True)
class Player:
    """`agent`: the agent of an arm for a task. `shown`: the number of the demonstration in its prompts, None without
    one."""

    agent: Agent
    shown: int | None = None


Players = Callable[[str, str, str], Player]
"""(arm, task, goal) → who attempts it."""


def run_attempts(attempts: Sequence[Attempt], players: Players, console: Console) -> None:
    """Runs those that are not finished, the expert of a task first, and prints the time left."""
    open_ones = [attempt for attempt in attempts if not attempt.is_done]
    with Progress(console, len(open_ones), "attempts").shown() as progress:
        for phones, of_phones in groupby(open_ones, lambda attempt: attempt.phones):
            with phones.opened() as start:
                for attempt in of_phones:
                    play(attempt, start(attempt.number), players)
                    progress.advance(1, f"{phones.name}, {attempt.arm}")


def play(attempt: Attempt, start: Start, players: Players) -> dict:
    """Returns the content of `result.json`; `success` as in `vlm-agent evaluate --online`."""
    shutil.rmtree(attempt.folder, ignore_errors=True)
    is_expert = attempt.arm == EXPERT
    if is_expert:
        player, limits, end = Player(start.expert()), Limits(MAX_STEPS), None
    else:
        player, expert = players(attempt.arm, start.task, start.goal), attempt.of_expert().result
        limits, end = Limits(allowed_steps(expert["steps"])), expert["reason"]
    name = attempt.phones.name
    # Without the task's address, as the phone of an address has its own size and theme.
    heading = Heading(f"{attempt.arm} {name} {start.task}", start.goal, attempt.arm, name, start.subset)
    with TraceWriter(attempt.folder, heading) as trace:
        guard = Guard(allow_purchases=True)  # nothing can be bought on these phones
        ending = act(player.agent, start.device, start.goal, trace, guard, limits)
    reached = start.reached()
    if is_expert and not (reached and ending.is_declared):
        raise AssertionError(f"the expert does not solve {start.task} on {name}: {attempt.folder}")
    result = {
        "task": start.task,
        "goal": start.goal,
        "reached": reached,
        "success": reached and (is_expert or ending.reason == end),
        "steps": ending.steps,
        "unparsed": ending.unparsed,
        "reason": ending.reason,
        "lines": lines_of(of_trace(attempt.folder)[1]).lines if ending.steps > ending.unparsed else [],
        "shown": player.shown,
    }
    write_json(attempt.folder / RESULT, result)
    return result
