"""Group-relative policy optimisation (Shao et al., 2024, section 4.1): A is the reward less the mean of the group.

A is not divided by the standard deviation of the group, which would weigh tasks of rare success or failure more, and
the loss is a mean over tokens (Dr. GRPO, Liu et al., 2025; DAPO, Yu et al., 2025, with its bounds 0.2 and 0.28 of the
ratio). There is neither a KL penalty nor a reference model, and no second sampling of groups without a comparison.
"""

from collections.abc import Sequence
from statistics import fmean

from vlm_agent.reinforcement.methods.method import Method, Trial, same_for_all_answers

CLIP = (0.2, 0.28)


def advantages(group: Sequence[Trial]) -> list[list[float]]:
    mean = fmean(trial.reward for trial in group)
    return same_for_all_answers([trial.reward - mean for trial in group], group)


METHOD = Method(advantages, compares=True, clip=CLIP)
