"""Statistics of a data set: counts, lengths, action mix, gestures, screen sizes, typed text, goal leakage.

They are computed from columns of the whole data set as flat arrays. Pixels are not read.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import starmap

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.schema import IN_STEPS
from vlm_agent.datasets.statistics.leakage import GoalLeak, find_leaks
from vlm_agent.episodes import ACTION_NAMES, Action, ActionKind, shown_action_names
from vlm_agent.geometry import DIRECTIONS, are_taps, directions

GRID = (60, 30)
"""(rows, columns) of a heat map. On a 2:1 phone screen, cells are about square."""


_EPISODE_COLUMNS = ("subset", "split", "goal")
_STEP_COLUMNS = ("height", "width", "action_kind", "touch_yx", "lift_yx", "text")


@dataclass(frozen=True)
class Columns:
    """E episodes with S steps in total, in the order of the data set. The steps of an episode are adjacent.

    `subset`, `split`, `goal`: str objects (E,). `lengths`: int64 (E,), steps per episode. `height`, `width`: int32
    (S,), pixels. `action_kind`: int8 (S,). `touch_yx`, `lift_yx`: float32 (S, 2), (y, x) in fractions of the screen.
    `text`: Arrow strings (S), the text of the action.
    """

    subset: np.ndarray
    split: np.ndarray
    goal: np.ndarray
    lengths: np.ndarray
    height: np.ndarray
    width: np.ndarray
    action_kind: np.ndarray
    touch_yx: np.ndarray
    lift_yx: np.ndarray
    text: pa.StringArray

    @cached_property
    def subsets(self) -> list[str]:
        """The subsets that have episodes, by name."""
        return sorted(set(self.subset.tolist()))

    @cached_property
    def action(self) -> np.ndarray:
        """Index into `ACTION_NAMES` of each step's `Action.name`, int64 (S,)."""
        is_tap = are_taps(self.touch_yx, self.lift_yx)
        names = np.where(is_tap, ACTION_NAMES.index("tap"), ACTION_NAMES.index("swipe"))
        for kind in set(ActionKind) - {ActionKind.DUAL_POINT}:
            names[self.action_kind == kind] = ACTION_NAMES.index(kind.short_name)
        return names

    @cached_property
    def direction(self) -> np.ndarray:
        """Index into `DIRECTIONS` of each swipe's `Action.direction`, int64 (S,); arbitrary for other steps."""
        return directions(self.touch_yx, self.lift_yx)

    def actions(self) -> Iterator[Action]:
        """Every action, in order."""
        points = (map(tuple, column.tolist()) for column in (self.touch_yx, self.lift_yx))
        return starmap(Action, zip(self.action_kind.tolist(), *points, self.text.to_pylist(), strict=True))

    def steps_of(self, subset: str) -> np.ndarray:
        """bool (S,): whether a step's episode belongs to the subset."""
        return np.repeat(self.subset == subset, self.lengths)

    def steps_that(self, action: str) -> np.ndarray:
        """bool (S,): whether a step's action has this name, one of `ACTION_NAMES`."""
        return self.action == ACTION_NAMES.index(action)


def read_columns(dataset: ShardDataset) -> Columns:
    """Reads the columns of every episode."""
    table = dataset.table([*_EPISODE_COLUMNS, *(IN_STEPS + name for name in _STEP_COLUMNS)])
    listed = table["steps"].combine_chunks()
    steps = listed.flatten()
    return Columns(
        **{name: table[name].to_numpy() for name in _EPISODE_COLUMNS},
        lengths=np.diff(listed.offsets.to_numpy()).astype(np.int64),
        **{name: steps.field(name).to_numpy() for name in ("height", "width", "action_kind")},
        **{name: steps.field(name).flatten().to_numpy().reshape(-1, 2) for name in ("touch_yx", "lift_yx")},
        text=steps.field("text"),
    )


@dataclass(frozen=True)
class Gestures:
    """`taps`: int64 of shape `GRID`, the number of taps in each cell. `swipes`: the number of swipes by direction."""

    taps: np.ndarray
    swipes: dict[str, int]


def count_gestures(columns: Columns) -> dict[str, Gestures]:
    """The gestures of each subset that has episodes."""
    taps, swipes = columns.steps_that("tap"), columns.steps_that("swipe")
    found = {}
    for subset in columns.subsets:
        here = columns.steps_of(subset)
        by_direction = np.bincount(columns.direction[here & swipes], minlength=len(DIRECTIONS))
        found[subset] = Gestures(
            heat_map(columns.touch_yx[here & taps]), dict(zip(DIRECTIONS, by_direction.tolist(), strict=True))
        )
    return found


def heat_map(points_yx: np.ndarray) -> np.ndarray:
    """The number of points in each cell, int64 of shape `GRID`. Points are float32 (N, 2), (y, x) in [0, 1]."""
    cells = np.clip((points_yx * np.asarray(GRID, np.float32)).astype(np.int64), 0, np.asarray(GRID) - 1)
    flat = cells[:, 0] * GRID[1] + cells[:, 1]
    return np.bincount(flat, minlength=GRID[0] * GRID[1]).reshape(GRID)


@dataclass(frozen=True)
class Statistics:
    """Statistics of a data set.

    lengths: by (subset, split), the number of steps of each episode, int64 (episodes,).
    actions: by subset, the number of steps of each action name.
    screen_sizes: the number of screens of each (height, width).
    gestures: by subset.
    typed: by subset, the number of characters of each typed text.
    leaks: by held-out split; empty if train or all other splits have no episode.
    """

    lengths: dict[tuple[str, str], np.ndarray]
    actions: dict[str, Counter[str]]
    screen_sizes: Counter[tuple[int, int]]
    gestures: dict[str, Gestures]
    typed: dict[str, np.ndarray]
    leaks: dict[str, GoalLeak]

    @property
    def subsets(self) -> list[str]:
        """The subsets that have episodes, by name."""
        return sorted(self.actions)

    @property
    def action_names(self) -> tuple[str, ...]:
        """The columns of a table of the action mix."""
        return shown_action_names(set().union(*self.actions.values()))

    def episodes(self, subset: str | None = None, split: str | None = None) -> int:
        return len(self.steps_of_episodes(subset, split))

    def steps(self, subset: str | None = None, split: str | None = None) -> int:
        return int(self.steps_of_episodes(subset, split).sum())

    def steps_of_episodes(self, subset: str | None = None, split: str | None = None) -> np.ndarray:
        """The number of steps of each episode, int64 (episodes,). None selects all subsets or splits."""
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


@dataclass(frozen=True)
class TokenBudget:
    """Tokens of whole trajectories.

    `recipe` is the recipe's name, `budget` the limit that the counts are compared with, `limit` its name. `counts`: by
    subset, the tokens of each episode's whole trajectory, int64 (episodes,).
    """

    recipe: str
    budget: int
    counts: Mapping[str, np.ndarray]
    limit: str = "budget"

    def of(self, subset: str | None = None) -> np.ndarray:
        """The counts of one subset, or of all."""
        return self.counts[subset] if subset is not None else np.concatenate([np.zeros(0, int), *self.counts.values()])

    def exceeding(self, subset: str | None = None) -> int:
        """The number of episodes with more tokens than the budget."""
        return int((self.of(subset) > self.budget).sum())


def spread(values: np.ndarray) -> tuple[int, float, float, int]:
    """(min, median, mean, max); zeros without values."""
    if not len(values):
        return (0, 0.0, 0.0, 0)
    return (int(values.min()), float(np.median(values)), float(values.mean()), int(values.max()))


def by_subset(columns: Columns, values: np.ndarray) -> dict[str, np.ndarray]:
    """Values per episode, (episodes,), by subset."""
    return {subset: values[columns.subset == subset] for subset in columns.subsets}


def summarise(columns: Columns) -> Statistics:
    keys = sorted(set(zip(columns.subset.tolist(), columns.split.tolist(), strict=True)))
    characters, types = pc.utf8_length(columns.text).to_numpy(), columns.steps_that("type")
    return Statistics(
        lengths={
            (subset, split): columns.lengths[(columns.subset == subset) & (columns.split == split)]
            for subset, split in keys
        },
        actions={subset: _actions(columns.action[columns.steps_of(subset)]) for subset in columns.subsets},
        screen_sizes=_screen_sizes(columns),
        gestures=count_gestures(columns),
        typed={subset: characters[types & columns.steps_of(subset)] for subset in columns.subsets},
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
