"""Goal leakage: AITW splits episodes, not goals, so a goal of the test split may also be in the train split.

Goals are compared with case ignored and white space normalised.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from vlm_agent.datasets.sources import SPLITS

TRAIN = "train"
HELD_OUT = tuple(split for split in SPLITS if split != TRAIN)


@dataclass(frozen=True)
class LeakedGoal:
    """A goal of a held-out split that is also in train: its text in the held-out split, and its episodes in each."""

    goal: str
    held_out: int
    train: int


@dataclass(frozen=True)
class GoalLeak:
    """The overlap of a held-out split with train.

    `goals`: the number of distinct goals, `goals_seen` of them in train. `episodes`: the number of episodes,
    `episodes_seen` of them with a goal in train. `most_frequent`: leaked goals, by number of held-out episodes.
    """

    goals: int
    goals_seen: int
    episodes: int
    episodes_seen: int
    most_frequent: tuple[LeakedGoal, ...]

    @property
    def share(self) -> float:
        """Percent of the held-out episodes whose goal was seen in training."""
        return 100 * self.episodes_seen / self.episodes


def find_leaks(goals: np.ndarray, splits: np.ndarray, shown: int = 12) -> dict[str, GoalLeak]:
    """The leak of each held-out split that has episodes; empty without train episodes.

    `goals` and `splits` are str objects (episodes,); `shown` bounds `most_frequent`.
    """
    in_train = _count(goals[splits == TRAIN])
    if not in_train:
        return {}
    found = {split: goals[splits == split] for split in HELD_OUT}
    return {split: _leak(its_goals, in_train, shown) for split, its_goals in found.items() if len(its_goals)}


def _leak(goals: np.ndarray, in_train: Counter[str], shown: int) -> GoalLeak:
    held_out = _count(goals)
    written = {normalise(goal): goal for goal in sorted(set(goals.tolist()), reverse=True)}
    seen = {goal: count for goal, count in held_out.items() if goal in in_train}
    first = sorted(seen, key=lambda goal: (-seen[goal], goal))[:shown]
    return GoalLeak(
        goals=len(held_out),
        goals_seen=len(seen),
        episodes=held_out.total(),
        episodes_seen=sum(seen.values()),
        most_frequent=tuple(LeakedGoal(written[goal], seen[goal], in_train[goal]) for goal in first),
    )


def _count(goals: np.ndarray) -> Counter[str]:
    counts: Counter[str] = Counter()
    for goal, count in Counter(goals.tolist()).items():
        counts[normalise(goal)] += count
    return counts


def normalise(goal: str) -> str:
    return " ".join(goal.casefold().split())
