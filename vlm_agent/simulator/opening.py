"""Simulated phones, plain or set up for a task. `simulated` and `simulated:SUBSET/SPLIT/SEED` on the command line."""

import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache

from vlm_agent.datasets.sources import SIMULATED_DEVICE
from vlm_agent.devices.device import DeviceAddress, DeviceKind, OpenedDevice, Solution
from vlm_agent.episodes import Episode
from vlm_agent.simulator.app import package_of
from vlm_agent.simulator.apps.launcher import LAUNCHER
from vlm_agent.simulator.phone import SIZE, SimulatedPhone
from vlm_agent.simulator.tasks import Task, sample_task

_ADDRESS = re.compile(r"([a-z_]+)/([a-z]+)/([0-9]{1,20})")


@dataclass(frozen=True)
class SimulatedTask:
    """A `SetTask`. `seed`: of its phone and goal. `size`: (height, width) of the screen in pixels. Screenshots are
    rendered at `scale` times the size, with the same layout. `sample`: its number, from 1, of a task that is played
    several times, and else 0.

    `task` raises DeviceError for an unknown subset or split.
    """

    subset: str
    split: str
    seed: int
    size: tuple[int, int] = SIZE
    scale: int = 1
    sample: int = 0

    @classmethod
    def at(cls, address: str) -> "SimulatedTask | None":
        """The task with this `address`, SUBSET/SPLIT/SEED; None for another form."""
        match = _ADDRESS.fullmatch(address)
        return None if match is None else cls(match[1], match[2], int(match[3]))

    @property
    def address(self) -> str:
        """The task for `vlm-agent phone --task` and `vlm-agent act --device simulated:`."""
        return f"{self.subset}/{self.split}/{self.seed}"

    @property
    def name(self) -> str:
        return f"{self.address}#{self.sample}" if self.sample else self.address

    @property
    def task(self) -> Task:
        return sample_task(self.subset, self.split, self.seed)

    @property
    def goal(self) -> str:
        return self.task.goal

    @property
    def template(self) -> str:
        return self.task.template

    @property
    def memory(self) -> bool:
        return self.task.memory

    def fresh_phone(self) -> tuple[SimulatedPhone, Task]:
        """A new phone at the start of the task; every call returns the same phone, pixel by pixel."""
        phone, task = SimulatedPhone(self.seed, self.size, scale=self.scale), self.task
        task.set_up(phone)
        return phone, task

    def open(self) -> AbstractContextManager[OpenedDevice]:
        return nullcontext(_opened(*self.fresh_phone(), self.address))

    def solution(self) -> Solution:
        """Computed once for all runs: the expert looks at as many screens as an agent."""
        return _solution_of(replace(self, sample=0))

    def demonstration(self) -> Episode:
        phone, task = self.fresh_phone()
        return Episode(self.name, task.subset, task.goal, task.solve(phone), device_type(self.size))


@lru_cache(maxsize=1024)
def _solution_of(task: SimulatedTask) -> Solution:
    phone, goal = task.fresh_phone()
    start = phone.durable()
    return Solution(tuple(step.action for step in goal.solve(phone, pixels=False)), start, phone.durable())


def device_type(size: tuple[int, int]) -> str:
    """The device of episodes on a phone whose screen is `size` (height, width) pixels."""
    return f"{SIMULATED_DEVICE}{size[1]}x{size[0]}"


def _opened(phone: SimulatedPhone, task: Task | None = None, address: str | None = None) -> OpenedDevice:
    kind = device_type(phone.size)
    return OpenedDevice(
        phone, kind, task, address, lambda: sorted(map(package_of, phone.catalogue)), LAUNCHER, phone.durable
    )


def _parse(which: str | None) -> DeviceAddress | None:
    if which is None:
        return DeviceAddress(lambda: nullcontext(_opened(SimulatedPhone(0))))
    task = SimulatedTask.at(which)
    return None if task is None else DeviceAddress(task.open, has_task=True)


SIMULATED = DeviceKind(
    ("simulated", "simulated:general/test/7 (a task: SUBSET/SPLIT/SEED)"),
    _parse,
    "vlm_agent.simulator.watched:record",
    is_served=True,
)
