"""DAgger (Ross et al., 2011, algorithm 3.1): the expert's answers are learned, on the screens that the agent reaches.

The expert performs a part of the answers itself, so that an agent that goes astray early also reaches the later screens
of a task: their β, which is constant here. A round learns its own rollouts, without those of earlier rounds.
"""

from collections.abc import Sequence

from vlm_agent.reinforcement.methods.method import Method, Trial

EXPERT_SHARE = 0.5


def advantages(group: Sequence[Trial]) -> list[list[float]]:
    return [list(map(float, trial.corrected)) for trial in group]


METHOD = Method(advantages, compares=False, expert_share=EXPERT_SHARE)
