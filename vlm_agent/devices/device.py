"""The interfaces of devices: the phone itself, its task, and its address on the command line."""

from collections import Counter
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from vlm_agent.episodes import Action, ActionKind, UiElement


class Device(Protocol):
    """A phone that shows screens and performs actions.

    Methods raise a DeviceError (`vlm_agent.devices.errors`) if the phone cannot be reached or refuses; a simulated
    phone never raises one.
    """

    @property
    def activity(self) -> str:
        """The foreground activity at the last screenshot, `package/activity`; empty if the device does not provide
        it."""

    @property
    def status(self) -> ActionKind | None:
        """The kind of the last status action; None before the first one."""

    @property
    def answer(self) -> str | None:
        """The text of the last ANSWER action; None before the first one."""

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the screen in pixels."""

    def screenshot(self) -> np.ndarray:
        """The current screen: uint8 (height, width, 3), RGB."""

    def elements(self) -> tuple[UiElement, ...] | None:
        """Texts and icons of the last screenshot; None if the device does not provide them."""

    def perform(self, action: Action) -> None:
        """Performs the action.

        Points of the action are (y, x) in screen fractions, 0 to 1. A status action is recorded as `status`, an ANSWER
        as `answer`; neither changes the screen. WAIT returns after at most a few seconds. OPEN_APP takes the app's
        name.
        """


class DeviceAround:
    """A base of devices around `device`, with its activity, status, answer and size."""

    def __init__(self, device: Device) -> None:
        self._device = device

    @property
    def activity(self) -> str:
        return self._device.activity

    @property
    def status(self) -> ActionKind | None:
        return self._device.status

    @property
    def answer(self) -> str | None:
        return self._device.answer

    @property
    def size(self) -> tuple[int, int]:
        return self._device.size


class HasGoal(Protocol):
    """`goal`: the instruction for the agent. `subset`: that of Android in the Wild that the goal belongs to or
    resembles most."""

    @property
    def goal(self) -> str: ...

    @property
    def subset(self) -> str: ...


class DeviceTask(HasGoal, Protocol):
    """A goal for a device whose state shows whether the goal is reached."""

    def reached(self, phone: Any) -> bool:
        """Whether the state of `phone` satisfies the goal. `phone`: a device of the kind that the task is for. Raises
        NotJudgedError if that is not known."""


class TaskWithoutExpert:
    """A base of set tasks (`task_sets.SetTask`) without an expert and without `memory`."""

    memory = False

    def solution(self) -> None:
        return None

    def demonstration(self) -> None:
        return None


@dataclass(frozen=True)
class Solution:
    """An expert's actions on a task, and what lasts on the phone (`OpenedDevice.durable`) before and after them."""

    actions: tuple[Action, ...]
    start: Counter[str]
    end: Counter[str]


@dataclass(frozen=True)
class OpenedDevice:
    """A device in use.

    `name` identifies it in traces. `task` is the task that it is set up for, or None. `replay_address` is the task's
    address if the device is deterministic, that is, if the same actions always produce the same screens; otherwise
    None. `packages` lists the packages of the apps that the phone has or can install; None if it cannot tell.
    `launcher` is the package of the home screen; None if it is not known. `durable` counts each thing that lasts on the
    phone, such as an installed app or an alarm, by a line of text; None if it cannot tell.
    """

    device: Device
    name: str
    task: DeviceTask | None = None
    replay_address: str | None = None
    packages: Callable[[], Collection[str]] | None = None
    launcher: str | None = None
    durable: Callable[[], Counter[str]] | None = None


@dataclass(frozen=True)
class DeviceAddress:
    """A parsed command-line address such as `simulated:general/test/7`.

    `open` is a context manager that raises DeviceError if the device is not available; `has_task` is whether the opened
    device is set up for a task.
    """

    open: Callable[[], AbstractContextManager[OpenedDevice]]
    has_task: bool = False


@dataclass(frozen=True)
class DeviceKind:
    """One kind of device on the command line.

    `forms` are its addresses as the user writes them. `parse` takes the part after `KIND:` (None without a colon) and
    returns None for an address that does not have one of the forms. It must not open the device. `recorder`: module and
    function that watches a person on it, such as `simulator.watched:record`; None if an agent's trace is the only way
    to demonstrate. `is_served`: the person operates the phone over a TCP port of this machine.
    """

    forms: tuple[str, ...]
    parse: Callable[[str | None], DeviceAddress | None]
    recorder: str | None = None
    is_served: bool = False
