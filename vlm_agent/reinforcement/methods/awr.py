"""Advantage-weighted regression (Peng et al., 2019, equation 12): cross entropy weighted by exp(A / β), at most 20.

A is the reward less the mean of the group, in place of a learned value of each state; their critic and their buffer of
earlier rollouts are left out. A group of equal rewards is not learned: each of its weights would be 1, also those of
failures.
"""

import math
from collections.abc import Sequence
from statistics import fmean

from vlm_agent.reinforcement.methods.method import Method, Trial, same_for_all_answers

BETA = 0.3
LARGEST_WEIGHT = 20.0


def advantages(group: Sequence[Trial]) -> list[list[float]]:
    if len({trial.reward for trial in group}) == 1:
        return same_for_all_answers([0.0] * len(group), group)
    mean, largest = fmean(trial.reward for trial in group), math.log(LARGEST_WEIGHT)
    return same_for_all_answers([math.exp(min((trial.reward - mean) / BETA, largest)) for trial in group], group)


METHOD = Method(advantages, compares=True)
