"""Goals that stand in more than one split: AITW divides episodes, not goals, so a test goal may have been trained on.

Two goals are the same here when they differ in nothing but case and white space.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from vlm_agent.datasets.splits import SPLITS

TRAIN = "train"
HELD_OUT = tuple(split for split in SPLITS if split != TRAIN)


@dataclass(frozen=True)
class LeakedGoal:
    """A goal of a held-out split that train has too: as it is written in the held-out split, and how many episodes of
    each have it."""

    goal: str
    held_out: int
    train: int


@dataclass(frozen=True)
class GoalLeak:
    """What a held-out split shares with train: `goals` different ones, `goals_seen` of them in train; `episodes`, and
    `episodes_seen` whose goal is in train. `most_frequent` lists leaked goals by their held-out episodes."""

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
    """By held-out split that has episodes; empty where there is no train episode to compare with.

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
