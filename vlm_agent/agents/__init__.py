"""Agents: who decides what to do next. One harness scores them all, offline on episodes and online on a phone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vlm_agent.episodes import Action, Step


@dataclass(frozen=True)
class Answer:
    """What an agent said, and the action it means; None where it means none, which is a wrong answer, not a missing
    one."""

    text: str
    action: Action | None


class Agent(Protocol):
    """`history` are the steps so far, screens and actions; `screenshot` is uint8 (height, width, 3), the screen now."""

    def act(self, goal: str, history: Sequence[Step], screenshot: np.ndarray) -> Answer: ...
