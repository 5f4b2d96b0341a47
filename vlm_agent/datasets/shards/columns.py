"""Columns of a whole data set as flat arrays, for statistics. Pixels are not read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.schema import IN_STEPS
from vlm_agent.episodes import ACTION_NAMES, ActionKind
from vlm_agent.geometry import are_taps, directions

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

    def steps_of(self, subset: str) -> np.ndarray:
        """bool (S,): whether a step's episode belongs to the subset."""
        return np.repeat(self.subset == subset, self.lengths)

    def steps_that(self, action: str) -> np.ndarray:
        """bool (S,): whether a step's action has this name, one of `ACTION_NAMES`."""
        return self.action == ACTION_NAMES.index(action)


def read_columns(dataset: ShardDataset, episodes: Sequence[int] | None = None) -> Columns:
    """Reads the columns of every episode, or of `episodes` (numbers in ascending order)."""
    table = dataset.table([*_EPISODE_COLUMNS, *(IN_STEPS + name for name in _STEP_COLUMNS)], episodes)
    listed = table["steps"].combine_chunks()
    steps = listed.flatten()
    return Columns(
        **{name: table[name].to_numpy() for name in _EPISODE_COLUMNS},
        lengths=np.diff(listed.offsets.to_numpy()).astype(np.int64),
        **{name: steps.field(name).to_numpy() for name in ("height", "width", "action_kind")},
        **{name: steps.field(name).flatten().to_numpy().reshape(-1, 2) for name in ("touch_yx", "lift_yx")},
        text=steps.field("text"),
    )
