"""What is in a data set: counts, lengths, action mix, gestures, screen sizes, typed text, goals that leak."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from vlm_agent.datasets.columns import Columns
from vlm_agent.datasets.gestures import Gestures, count_gestures
from vlm_agent.datasets.goals import GoalLeak, find_leaks
from vlm_agent.episodes import ACTION_NAMES, SUBSETS


@dataclass(frozen=True)
class Statistics:
    """`lengths` are the steps of each episode by (subset, split); `actions` counts action names by subset;
    `screen_sizes` counts screens by (height, width); `gestures` by subset; `typed` holds the characters of each typed
    text by subset; `leaks` by held-out split, empty where train or every other split has no episode."""

    lengths: dict[tuple[str, str], np.ndarray]
    actions: dict[str, Counter[str]]
    screen_sizes: Counter[tuple[int, int]]
    gestures: dict[str, Gestures]
    typed: dict[str, np.ndarray]
    leaks: dict[str, GoalLeak]

    @property
    def subsets(self) -> list[str]:
        """Those that have episodes, in AITW's order."""
        return [subset for subset in SUBSETS if subset in self.actions]

    def episodes(self, subset: str | None = None, split: str | None = None) -> int:
        return len(self.steps_of_episodes(subset, split))

    def steps(self, subset: str | None = None, split: str | None = None) -> int:
        return int(self.steps_of_episodes(subset, split).sum())

    def steps_of_episodes(self, subset: str | None = None, split: str | None = None) -> np.ndarray:
        """int64 (episodes,): how many steps each has."""
        found = [
            lengths
            for (its_subset, its_split), lengths in self.lengths.items()
            if subset in (None, its_subset) and split in (None, its_split)
        ]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def action_share(self, name: str, subset: str | None = None) -> float:
        """Percent of the steps, of one subset or of all, whose action is `name` (one of `ACTION_NAMES`)."""
        counts = [self.actions[subset]] if subset is not None else list(self.actions.values())
        total = sum(count.total() for count in counts)
        return 100 * sum(count[name] for count in counts) / total if total else 0.0

    def length_summary(self, subset: str | None = None) -> tuple[int, float, float, int]:
        """`spread` of the steps of an episode."""
        return spread(self.steps_of_episodes(subset))


@dataclass(frozen=True)
class TokenBudget:
    """`counts`: by subset, the tokens of each episode's whole trajectory under `recipe` (its name), int64 (episodes,).
    `budget`: how many fit."""

    recipe: str
    budget: int
    counts: Mapping[str, np.ndarray]

    def of(self, subset: str | None = None) -> np.ndarray:
        """The counts of one subset, or of all."""
        return self.counts[subset] if subset is not None else np.concatenate([np.zeros(0, int), *self.counts.values()])

    def exceeding(self, subset: str | None = None) -> int:
        """How many episodes do not fit."""
        return int((self.of(subset) > self.budget).sum())


def spread(values: np.ndarray) -> tuple[int, float, float, int]:
    """(min, median, mean, max); zeros where there is nothing."""
    if not len(values):
        return (0, 0.0, 0.0, 0)
    return (int(values.min()), float(np.median(values)), float(values.mean()), int(values.max()))


def by_subset(columns: Columns, values: np.ndarray) -> dict[str, np.ndarray]:
    """One value an episode, (episodes,), divided by subset."""
    return {subset: values[columns.subset == subset] for subset in columns.subsets}


def summarise(columns: Columns) -> Statistics:
    keys = sorted(set(zip(columns.subset.tolist(), columns.split.tolist(), strict=True)))
    return Statistics(
        lengths={
            (subset, split): columns.lengths[(columns.subset == subset) & (columns.split == split)]
            for subset, split in keys
        },
        actions={subset: _actions(columns.action[columns.steps_of(subset)]) for subset in columns.subsets},
        screen_sizes=_screen_sizes(columns),
        gestures=count_gestures(columns),
        typed=_typed(columns),
        leaks=find_leaks(columns.goal, columns.split),
    )


def _actions(found: np.ndarray) -> Counter[str]:
    counts = np.bincount(found, minlength=len(ACTION_NAMES)).tolist()
    return Counter({name: count for name, count in zip(ACTION_NAMES, counts, strict=True) if count})


def _screen_sizes(columns: Columns) -> Counter[tuple[int, int]]:
    both = columns.height.astype(np.int64) << 32 | columns.width
    sizes, counts = np.unique(both, return_counts=True)
    return Counter(
        {(size >> 32, size & 0xFFFFFFFF): count for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)}
    )


def _typed(columns: Columns) -> dict[str, np.ndarray]:
    characters = pc.utf8_length(columns.text).to_numpy()
    typed = columns.steps_that("type")
    return {subset: characters[typed & columns.steps_of(subset)] for subset in columns.subsets}
