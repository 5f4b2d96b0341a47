"""Filtered behaviour cloning: successful rollouts are learned like demonstrations, all others are left out.

The baseline of DigiRL (Bai et al., 2024, section 5). Its code keeps the rollouts at or above a quantile of the rewards,
which is all of them where fewer succeed than the quantile; here success alone decides.
"""

from collections.abc import Sequence

from vlm_agent.reinforcement.methods.method import Method, Trial, same_for_all_answers


def advantages(group: Sequence[Trial]) -> list[list[float]]:
    return same_for_all_answers([float(trial.success) for trial in group], group)


METHOD = Method(advantages, compares=False)
