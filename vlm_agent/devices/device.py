"""The interfaces of devices: the phone itself, and how the command line opens one."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from vlm_agent.episodes import Action, ActionKind, UiElement


class Device(Protocol):
    """A phone that shows screens and performs actions.

    Methods raise a DeviceError (`vlm_agent.devices.errors`) when the phone cannot be reached or refuses; a simulated
    phone never does.
    """

    @property
    def activity(self) -> str:
        """The activity in front, `package/activity`, at the last screenshot; empty if not provided."""

    @property
    def status(self) -> ActionKind | None:
        """The last status action that was performed."""

    @property
    def answer(self) -> str | None:
        """The text of the last ANSWER action."""

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the screen in pixels."""

    def screenshot(self) -> np.ndarray:
        """The current screen: uint8 (height, width, 3), RGB."""

    def elements(self) -> tuple[UiElement, ...] | None:
        """Texts and icons of the last screenshot; None if the device does not provide them."""

    def perform(self, action: Action) -> None:
        """Perform the action.

        A status action is recorded as `status`, an ANSWER as `answer`; neither changes the screen. WAIT returns after
        at most a few seconds. OPEN_APP takes the app's name.
        """


class DeviceTask(Protocol):
    """A goal for a device whose state shows whether the goal is reached."""

    @property
    def goal(self) -> str: ...

    @property
    def subset(self) -> str: ...

    def reached(self, phone: Any) -> bool:
        """Whether the device is in the state that the goal asks for. `phone`: a device of the task's own kind."""


@dataclass(frozen=True)
class OpenedDevice:
    """A device in use.

    `name` identifies it in traces. `task` is the task at whose start it stands, None without one. `replay_address` is
    the task's address if the same actions on it give the same screens.
    """

    device: Device
    name: str
    task: DeviceTask | None = None
    replay_address: str | None = None


@dataclass(frozen=True)
class DeviceAddress:
    """A parsed command-line address such as `simulated:general/test/7`.

    `open` is a context manager that raises DeviceError when the device is not available; `has_task` is whether the
    opened device stands at the start of a task.
    """

    open: Callable[[], AbstractContextManager[OpenedDevice]]
    has_task: bool = False


@dataclass(frozen=True)
class DeviceKind:
    """One kind of device on the command line.

    `forms` are its addresses as the user writes them. `parse` takes what follows `KIND:` (None without a colon) and
    returns None for an address that is not one of the forms. It must not open anything.
    """

    forms: tuple[str, ...]
    parse: Callable[[str | None], DeviceAddress | None]
