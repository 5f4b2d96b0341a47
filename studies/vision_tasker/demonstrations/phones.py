"""Phones on which a task is done again: the simulated phone of another size or theme.

A task of number n has the same goal and the same state on all phones of a group.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from vlm_agent.agents import Agent
from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.devices import Device
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.demonstrations import SIZE, simulated_tasks
from vlm_agent.simulator.drawing.theme import Theme, sample_theme

PAD = (520, 312)
"""(height, width) of a pad with the proportions of the paper's 2000x1200, on which three quarters of the rows fit."""

_DRAWERS = {"scroll": "pages", "pages": "none", "none": "scroll"}
_SEARCH = {"top": "bottom", "bottom": "top"}


@dataclass(frozen=True)
class Start:
    """A phone at the start of a task. `expert`: an agent that does the task on this phone."""

    device: Device
    task: str
    goal: str
    subset: str
    reached: Callable[[], bool]
    expert: Callable[[], Agent]


class Phones(Protocol):
    """`opened`: a function from the number of a task to its start. Only the last start is in use."""

    @property
    def name(self) -> str: ...
    @property
    def tasks(self) -> int: ...
    def opened(self) -> AbstractContextManager[Callable[[int], Start]]: ...


@dataclass(frozen=True)
class SimulatedPhones:
    """The first `tasks` tasks of `vlm-agent evaluate --online`, on phones of `size`, (height, width) in pixels."""

    name: str
    tasks: int
    size: tuple[int, int] = SIZE
    has_other_theme: bool = False

    @contextmanager
    def opened(self) -> Iterator[Callable[[int], Start]]:
        tasks = simulated_tasks(self.tasks, 0)

        def start(number: int) -> Start:
            task = tasks[number].task

            def fresh() -> SimulatedPhone:
                theme = other_theme(task.seed) if self.has_other_theme else None
                phone = SimulatedPhone(task.seed, self.size, theme)
                task.set_up(phone)
                return phone

            def expert() -> Agent:
                return ScriptedAgent([step.action for step in task.solve(fresh(), pixels=False)])

            phone = fresh()
            return Start(phone, tasks[number].name, task.goal, task.subset, lambda: task.reached(phone), expert)

        yield start


def other_theme(seed: int) -> Theme:
    """A theme that differs from that of the seed's phone in colours and in what decides the way: the app drawer, the
    place of the search pill and of the floating button, the height of rows."""
    own = SimulatedPhone(seed).theme
    rng = random.Random(f"other theme {seed}")
    theme = next(theme for theme in iter(lambda: sample_theme(rng), None) if theme.dark != own.dark)
    return replace(
        theme,
        drawer=_DRAWERS[own.drawer],
        search_at=_SEARCH[own.search_at],
        fab_x=0.14 if own.fab_x > 0.5 else 0.86,
        row=34.0 if own.row > 37 else 40.0,
    )
