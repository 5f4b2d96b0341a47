"""What statistics are computed from: a data set's columns as flat arrays, read without touching a pixel."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from vlm_agent.datasets.shard_schema import IN_STEPS
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.episodes import ACTION_NAMES, SUBSETS, TAP_DISTANCE, Action, ActionKind, aitw_distance

DIRECTIONS = ("up", "down", "left", "right")
"""Where the finger of a swipe moves."""

_OF_EPISODES = ("subset", "split", "goal")
_OF_STEPS = ("height", "width", "action_kind", "touch_yx", "lift_yx", "text")


@dataclass(frozen=True)
class Columns:
    """E episodes of together S steps, in the data set's order; steps of an episode are adjacent.

    `subset`, `split`, `goal`: str objects (E,). `lengths`: int64 (E,), steps of each episode. `height`, `width`: int32
    (S,), pixels. `action_kind`: int8 (S,). `touch_yx`, `lift_yx`: float32 (S, 2), (y, x) in fractions of the screen.
    `text`: Arrow strings (S), what was typed. `touched`: str objects (S,), the name of what is under a step's touch, or
    empty; None where nobody asked for it (`touched.py`).
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
    touched: np.ndarray | None = None

    @cached_property
    def subsets(self) -> list[str]:
        """Those that have episodes, in AITW's order."""
        present = set(self.subset.tolist())
        return [subset for subset in SUBSETS if subset in present]

    @cached_property
    def action(self) -> np.ndarray:
        """int64 (S,): which of `ACTION_NAMES` each action has, as `Action.name` gives it."""
        is_tap = aitw_distance(self.touch_yx, self.lift_yx) <= np.float32(TAP_DISTANCE)
        found = np.where(is_tap, ACTION_NAMES.index("tap"), ACTION_NAMES.index("swipe"))
        for kind in set(ActionKind) - {ActionKind.DUAL_POINT}:
            found[self.action_kind == kind] = ACTION_NAMES.index(Action(kind).name)
        return found

    @cached_property
    def direction(self) -> np.ndarray:
        """int64 (S,): which of `DIRECTIONS` each gesture has, as `Action.direction` gives it; for swipes only."""
        dy, dx = (self.lift_yx.astype(np.float64) - self.touch_yx).T
        vertical = np.where(dy > 0, DIRECTIONS.index("down"), DIRECTIONS.index("up"))
        horizontal = np.where(dx > 0, DIRECTIONS.index("right"), DIRECTIONS.index("left"))
        return np.where(np.abs(dy) >= np.abs(dx), vertical, horizontal)

    def steps_of(self, subset: str) -> np.ndarray:
        """bool (S,): whether a step's episode belongs to the subset."""
        return np.repeat(self.subset == subset, self.lengths)

    def steps_that(self, action: str) -> np.ndarray:
        """bool (S,): whether a step's action has this name of `ACTION_NAMES`."""
        return self.action == ACTION_NAMES.index(action)


def read_columns(dataset: ShardDataset) -> Columns:
    """Reads these columns, and no others, of every episode of the data set."""
    table = dataset.table([*_OF_EPISODES, *(IN_STEPS + name for name in _OF_STEPS)])
    episodes = table["steps"].combine_chunks()
    steps = episodes.flatten()
    return Columns(
        **{name: table[name].to_numpy() for name in _OF_EPISODES},
        lengths=np.diff(episodes.offsets.to_numpy()).astype(np.int64),
        **{name: steps.field(name).to_numpy() for name in ("height", "width", "action_kind")},
        **{name: steps.field(name).flatten().to_numpy().reshape(-1, 2) for name in ("touch_yx", "lift_yx")},
        text=steps.field("text"),
    )
