"""`simulated`, `simulated:SUBSET/SPLIT/SEED`: a simulated phone on the command line; the second form sets up a task."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from vlm_agent.devices.device import DeviceAddress, DeviceKind, OpenedDevice
from vlm_agent.simulator.app import package_of
from vlm_agent.simulator.apps.launcher import LAUNCHER
from vlm_agent.simulator.phone import SimulatedPhone
from vlm_agent.simulator.tasks import sample_task

_ADDRESS = re.compile(r"([a-z_]+)/([a-z]+)/([0-9]+)")


def _name(phone: SimulatedPhone) -> str:
    height, width = phone.size
    return f"simulated_{width}x{height}"


def _packages(phone: SimulatedPhone) -> list[str]:
    return sorted(map(package_of, phone.catalogue))


@contextmanager
def _open_plain() -> Iterator[OpenedDevice]:
    phone = SimulatedPhone(0)
    yield OpenedDevice(phone, _name(phone), packages=lambda: _packages(phone), launcher=LAUNCHER)


@contextmanager
def _open_task(subset: str, split: str, seed: int) -> Iterator[OpenedDevice]:
    task = sample_task(subset, split, seed)
    phone = SimulatedPhone(task.seed)
    task.set_up(phone)
    yield OpenedDevice(phone, _name(phone), task, f"{subset}/{split}/{seed}", lambda: _packages(phone), LAUNCHER)


def _parse(which: str | None) -> DeviceAddress | None:
    if which is None:
        return DeviceAddress(_open_plain)
    match = _ADDRESS.fullmatch(which)
    if match is None:
        return None
    return DeviceAddress(lambda: _open_task(match[1], match[2], int(match[3])), has_task=True)


SIMULATED = DeviceKind(
    ("simulated", "simulated:general/test/7 (a task: SUBSET/SPLIT/SEED)"),
    _parse,
    "vlm_agent.simulator.watched:record",
    is_served=True,
)
