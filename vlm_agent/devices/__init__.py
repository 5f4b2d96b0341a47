"""Phones that an agent can operate: simulated, or real over ADB."""

from typing import Protocol

import numpy as np

from vlm_agent.episodes import Action


class Device(Protocol):
    """A phone: what it shows, and doing something on it."""

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the screen in pixels."""

    def screenshot(self) -> np.ndarray:
        """What the screen shows: uint8 (height, width, 3), RGB."""

    def perform(self, action: Action) -> None:
        """Do the action; a status action is noted and changes nothing on the screen."""
