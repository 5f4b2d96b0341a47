"""DAgger (Ross et al., 2011, algorithm 3.1): on the screens that the agent reaches, the expert's answers are learned.

Every rollout is the agent's own (their β is 0, as they suggest for all rounds but the first), and each round learns its
own rollouts alone, not those of earlier rounds.
"""

from collections.abc import Sequence

from vlm_agent.reinforcement.methods.method import Method, Trial, same_for_all_answers


def advantages(group: Sequence[Trial]) -> list[list[float]]:
    return same_for_all_answers([1.0] * len(group), group)


METHOD = Method(advantages, compares=False, is_corrected=True)
