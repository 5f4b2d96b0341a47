"""What a method of reinforcement is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Trial(NamedTuple):
    """One rollout of a task. `states`: for each of its answers the state of the phone before it; equal states are equal
    strings."""

    reward: float
    success: bool
    states: Sequence[str]


@dataclass(frozen=True)
class Method:
    """`advantages`: the advantage of every answer of every trial of a group, [trial][answer]. `compares`: whether they
    come from a comparison of the trials, so that a group needs two or more. `clip`: the bounds (low, high) of the ratio
    between learner and sampler; None: no ratio is taken, and the loss is the advantage times the cross entropy.
    """

    advantages: Callable[[Sequence[Trial]], list[list[float]]]
    compares: bool
    clip: tuple[float, float] | None = None


def same_for_all_answers(advantages: Sequence[float], group: Sequence[Trial]) -> list[list[float]]:
    """Every answer of a trial has the advantage of the trial."""
    return [[advantage] * len(trial.states) for advantage, trial in zip(advantages, group, strict=True)]
