"""Agents: who decides what to do next. One harness scores them all, offline on episodes and online on a phone."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from vlm_agent.episodes import Action, Episode, Step


@dataclass(frozen=True)
class Answer:
    """What an agent said, and the action it means; None where it means none, which is a wrong answer, not a missing
    one.

    `settled`: whether it was known without decoding a token (see `greedy.py`); None where there is no such thing.
    `tokens`: how many were read and how many said; None where it is not known.
    """

    text: str
    action: Action | None
    settled: bool | None = field(default=None, compare=False)
    tokens: tuple[int, int] | None = field(default=None, compare=False)


class Agent(Protocol):
    """`history` are the steps so far, screens and actions; `screenshot` is uint8 (height, width, 3), the screen now."""

    def act(self, goal: str, history: Sequence[Step], screenshot: np.ndarray) -> Answer: ...

    def answer_episodes(self, episodes: Sequence[Episode]) -> list[list[Answer]]:
        """What it says at each step of each episode when every earlier step went as demonstrated."""
        ...

    def on_grey_screens(self) -> "Agent":
        """The same agent without sight."""
        ...

    def without_history(self) -> "Agent":
        """The same agent without memory: each step is its first."""
        ...
