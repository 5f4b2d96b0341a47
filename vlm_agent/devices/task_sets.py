"""Task sets: tasks that phones can judge, each on a phone that is reset for it."""

from contextlib import AbstractContextManager
from typing import Protocol

from vlm_agent.devices.acting.episode import Solution
from vlm_agent.devices.device import OpenedDevice
from vlm_agent.episodes import Episode


class SetTask(Protocol):
    """A task of a set, hashable."""

    @property
    def name(self) -> str:
        """Tells the task apart from others of its set, such as general/test/7."""

    @property
    def goal(self) -> str:
        """The instruction for the agent."""

    @property
    def subset(self) -> str:
        """The subset of Android in the Wild that the goal belongs to or resembles most."""

    @property
    def template(self) -> str:
        """The name of the template that the goal is an instance of."""

    @property
    def memory(self) -> bool:
        """Whether some correct action depends on more than the goal and the current screen."""

    def open(self) -> AbstractContextManager[OpenedDevice]:
        """A phone at the start of the task; every call opens one in the same state."""

    def solution(self) -> Solution | None:
        """The expert's; None if there is none for the task."""

    def demonstration(self) -> Episode | None:
        """The expert's solution with its screens; None if there is none for the task."""
