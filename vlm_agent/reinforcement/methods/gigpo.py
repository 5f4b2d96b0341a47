"""Group-in-group policy optimisation (Feng et al., 2025, section 4): the advantage of GRPO, plus that of the step.

The steps of a group that begin in equal states of the phone are compared by their discounted return: the advantage of a
step is its return less the mean of these steps, and 0 in a state that no other step has. Neither advantage is divided
by a standard deviation (their variant F_norm = 1), and the mean is taken over tokens.
"""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from vlm_agent.reinforcement.methods import grpo
from vlm_agent.reinforcement.methods.method import Method, Trial

OMEGA = 1.0
"""The weight of the advantage of a step."""
DISCOUNT = 0.95
"""The factor of the reward for each answer between the step and the last one."""


def advantages(group: Sequence[Trial]) -> list[list[float]]:
    returns = [
        [trial.reward * DISCOUNT ** (len(trial.states) - 1 - step) for step in range(len(trial.states))]
        for trial in group
    ]
    in_state: dict[str, list[float]] = defaultdict(list)
    for trial, values in zip(group, returns, strict=True):
        for state, value in zip(trial.states, values, strict=True):
            in_state[state].append(value)
    return [
        [
            whole + OMEGA * (value - fmean(in_state[state]))
            for whole, state, value in zip(of_trial, trial.states, values, strict=True)
        ]
        for of_trial, trial, values in zip(grpo.advantages(group), group, returns, strict=True)
    ]


METHOD = Method(advantages, compares=True, clip=grpo.CLIP)
