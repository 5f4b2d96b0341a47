"""Phones that an agent can operate: simulated, or real over ADB."""

from typing import Protocol

import numpy as np

from vlm_agent.episodes import Action, ActionKind, UiElement


class Device(Protocol):
    """A phone: what it shows, and doing something on it.

    Raises a DeviceError (`vlm_agent.devices.errors`) when the phone is not to be had; a simulated one always is.
    """

    @property
    def activity(self) -> str:
        """What is in front, `package/activity`, as of the last screenshot; empty where the phone does not tell."""

    @property
    def status(self) -> ActionKind | None:
        """The status action that was noted last."""

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the screen in pixels."""

    def screenshot(self) -> np.ndarray:
        """What the screen shows: uint8 (height, width, 3), RGB."""

    def elements(self) -> tuple[UiElement, ...] | None:
        """The texts and icons on the screen as it was at the last screenshot; None where the phone does not tell."""

    def perform(self, action: Action) -> None:
        """Do the action; a status action is noted and changes nothing on the screen."""
