"""Steps and what was predicted for them as columns: what verdicts are computed from, without an object a step."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from vlm_agent.episodes import ACTION_NAMES, NO_POINT, TAP_DISTANCE, Action, ActionKind, aitw_distance
from vlm_agent.evaluation.predictions import Prediction

NO_ACTION = -1
"""The kind of what is no action; no gold action has it, so it matches none."""

UNPARSED_NAME = len(ACTION_NAMES)
"""The code in `Actions.name` of what is no action; the others are indices of `ACTION_NAMES`."""


@dataclass(frozen=True)
class Actions:
    """N actions: `kind` int8 (N,), `touch` and `lift` float64 (N, 2) as (y, x), `text` a pyarrow string array (N,).

    What is no action has kind `NO_ACTION`, points `NO_POINT` and no text.
    """

    kind: np.ndarray
    touch: np.ndarray
    lift: np.ndarray
    text: pa.Array

    @cached_property
    def is_tap(self) -> np.ndarray:
        near = aitw_distance(self.touch, self.lift) <= np.float32(TAP_DISTANCE)
        return near & (self.kind == ActionKind.DUAL_POINT)

    @cached_property
    def is_swipe(self) -> np.ndarray:
        return (self.kind == ActionKind.DUAL_POINT) & ~self.is_tap

    @cached_property
    def name(self) -> np.ndarray:
        """Indices of `ACTION_NAMES`, `UNPARSED_NAME` for what is no action, int8 (N,)."""
        return np.where(self.is_swipe, np.int8(ACTION_NAMES.index("swipe")), _NAME_OF_KIND[self.kind])


@dataclass(frozen=True)
class Boxes:
    """The elements of N screens: `values` float64 (B, 4) as (y, x, height, width), of which those of screen n start at
    `starts[n]` and are `counts[n]`."""

    values: np.ndarray
    starts: np.ndarray
    counts: np.ndarray

    def padded(self, screens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Float32 (S, M, 4) and counts (S,) of some screens, as the matcher takes them; the padding is anything."""
        counts = self.counts[screens]
        slots = np.arange(counts.max(initial=0))
        index = np.minimum(self.starts[screens, None] + slots, max(0, len(self.values) - 1))
        return self._float32[index], counts

    def listed(self, screens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The boxes of some screens one after the other, (P, 4), and for each the position in `screens`, (P,)."""
        index, place = self.indices(screens)
        return self.values.take(index, axis=0), place

    def indices(self, screens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where in `values` the boxes of some screens are, and for each the position in `screens`, int (P,)."""
        counts = self.counts[screens]
        place = np.repeat(np.arange(len(screens)), counts)
        first = np.cumsum(counts) - counts
        return np.arange(len(place)) + np.repeat(self.starts[screens] - first, counts), place

    @cached_property
    def _float32(self) -> np.ndarray:
        return self.values.astype(np.float32)


@dataclass(frozen=True)
class StepTable:
    """N steps with what was predicted: `episode_id` and `subset` pyarrow string arrays, `step` and `episode_length`
    int (N,), the gold and the predicted actions, and the elements on each screen."""

    episode_id: pa.Array
    subset: pa.Array
    step: np.ndarray
    episode_length: np.ndarray
    gold: Actions
    predicted: Actions
    boxes: Boxes

    def __len__(self) -> int:
        return len(self.step)

    @classmethod
    def of(cls, rows: Sequence[Prediction]) -> "StepTable":
        counts = np.array([len(row.elements) for row in rows], np.int64)
        values = np.array([element.box for row in rows for element in row.elements], np.float64).reshape(-1, 4)
        return cls(
            episode_id=pa.array([row.episode_id for row in rows], pa.string()),
            subset=pa.array([row.subset for row in rows], pa.string()),
            step=np.array([row.step for row in rows], np.int64),
            episode_length=np.array([row.episode_length for row in rows], np.int64),
            gold=action_columns([row.gold for row in rows]),
            predicted=action_columns([row.predicted for row in rows]),
            boxes=Boxes(values, np.cumsum(counts) - counts, counts),
        )


def action_columns(actions: Sequence[Action | None]) -> Actions:
    """The same actions as columns; None is no action."""
    return Actions(
        kind=np.array([NO_ACTION if action is None else action.kind for action in actions], np.int8),
        touch=_points([NO_POINT if action is None else action.touch_yx for action in actions]),
        lift=_points([NO_POINT if action is None else action.lift_yx for action in actions]),
        text=pa.array(["" if action is None else action.text for action in actions], pa.string()),
    )


def _points(points: list[tuple[float, float]]) -> np.ndarray:
    return np.array(points, np.float64).reshape(-1, 2)


def _name_of_kind() -> np.ndarray:
    """Indexed by kind, -1 being the last: index of the name that an action of this kind has, a tap for a gesture."""
    names = np.full(max(ActionKind) + 2, UNPARSED_NAME, np.int8)
    for kind in ActionKind:
        action = Action(kind, (0.5, 0.5), (0.5, 0.5)) if kind is ActionKind.DUAL_POINT else Action(kind)
        names[kind] = ACTION_NAMES.index(action.name)
    return names


_NAME_OF_KIND = _name_of_kind()
