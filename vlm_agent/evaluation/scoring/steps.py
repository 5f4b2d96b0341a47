"""Steps as columns: gold actions, predicted actions and elements, from which verdicts are computed.

`step_tables` reads a predictions file, or a list of predictions, in tables that fit in memory. Scoring uses these;
`predictions.read_predictions` returns the same rows as objects.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlm_agent.episodes import (
    ACTION_NAMES,
    KINDS_WITH_TEXT,
    KINDS_WITH_TOUCH,
    NO_POINT,
    NOT_SHOWN,
    TARGET,
    Action,
    ActionKind,
)
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.predictions import Prediction, open_predictions
from vlm_agent.geometry import are_taps

NO_ACTION = -1
"""The kind of an answer that is not an action. Gold actions never have it, so it matches none."""

_NO_BOX = (np.nan,) * 4

UNPARSED_NAME = len(ACTION_NAMES)
"""The value in `Actions.name` of an answer that is not an action; others are indices of `ACTION_NAMES`."""


@dataclass(frozen=True)
class Actions:
    """N actions: `kind` int8 (N,), `touch` and `lift` float64 (N, 2) as (y, x), `text` a pyarrow string array (N,).

    An answer that is not an action has kind `NO_ACTION`, points `NO_POINT` and empty text.
    """

    kind: np.ndarray
    touch: np.ndarray
    lift: np.ndarray
    text: pa.Array

    @cached_property
    def is_tap(self) -> np.ndarray:
        return are_taps(self.touch, self.lift) & (self.kind == ActionKind.DUAL_POINT)

    @cached_property
    def is_swipe(self) -> np.ndarray:
        return (self.kind == ActionKind.DUAL_POINT) & ~self.is_tap

    @property
    def is_touch(self) -> np.ndarray:
        return self.is_tap | np.isin(self.kind, [kind for kind in ActionKind if kind.facts.points == 1])

    @cached_property
    def name(self) -> np.ndarray:
        """Indices of `ACTION_NAMES`, `UNPARSED_NAME` for an answer that is not an action, int8 (N,)."""
        return np.where(self.is_swipe, np.int8(ACTION_NAMES.index("swipe")), _NAME_OF_KIND[self.kind])

    def take(self, index: np.ndarray) -> "Actions":
        """The actions at the indices (K,), in this order."""
        return Actions(self.kind[index], self.touch[index], self.lift[index], self.text.take(pa.array(index)))


@dataclass(frozen=True)
class Boxes:
    """The elements of N screens: `values` float64 (B, 4) as (y, x, height, width). Screen n has the `counts[n]` boxes
    from index `starts[n]`."""

    values: np.ndarray
    starts: np.ndarray
    counts: np.ndarray

    def padded(self, screens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Boxes float32 (S, M, 4) and counts (S,) of S `screens`, as the matcher expects them, arbitrarily padded."""
        counts = self.counts[screens]
        slots = np.arange(counts.max(initial=0))
        index = np.minimum(self.starts[screens, None] + slots, max(0, len(self.values) - 1))
        return self._float32[index], counts

    def listed(self, screens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The boxes of `screens` concatenated, (P, 4), and the position in `screens` of each, (P,)."""
        index, place = self.indices(screens)
        return self.values.take(index, axis=0), place

    def indices(self, screens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The indices in `values` of the boxes of `screens`, and the position in `screens` of each, both int (P,)."""
        counts = self.counts[screens]
        place = np.repeat(np.arange(len(screens)), counts)
        first = np.cumsum(counts) - counts
        return np.arange(len(place)) + np.repeat(self.starts[screens] - first, counts), place

    @cached_property
    def _float32(self) -> np.ndarray:
        return self.values.astype(np.float32)


@dataclass(frozen=True)
class Ruling:
    """A scorer's verdict on N steps, bool (N,) each: whether the answer is right, whether its kind is, and whether the
    scorer counts the step, among the steps and among the kinds."""

    right: np.ndarray
    same_kind: np.ndarray
    counted: np.ndarray
    has_kind: np.ndarray


@dataclass(frozen=True)
class StepTable:
    """N steps with their predictions: `episode_id` and `subset` are pyarrow string arrays, `step` and `episode_length`
    int (N,). Further columns are the gold and predicted actions and the elements on each screen.

    `predicted_box` float64 (N, 4) holds the box that each answer names, as (y, x, height, width); NaN where it names
    none. `size` int (N, 2) is (height, width) of the screens in pixels, 0 where unknown; `instruction` the low-level
    instructions, a pyarrow string array, empty where there is none. `tree` has every element of the screens in order,
    and `element_text` and `element_type` their texts and types.
    """

    episode_id: pa.Array
    subset: pa.Array
    step: np.ndarray
    episode_length: np.ndarray
    gold: Actions
    predicted: Actions
    predicted_box: np.ndarray
    size: np.ndarray
    instruction: pa.Array
    tree: Boxes
    element_text: pa.Array
    element_type: pa.Array

    @cached_property
    def boxes(self) -> Boxes:
        """The elements that are shown: visible and with an extent. Where the data set marks none, all of a screen."""
        return self._of(self.shown)

    @cached_property
    def targets(self) -> Boxes:
        """The elements that the data set marks as the gold action's."""
        index, _ = self.tree.indices(np.arange(len(self)))
        return self._of(index[self._have_types((TARGET,))[index]])

    @cached_property
    def nodes(self) -> Boxes:
        """Every window and node, in order."""
        return self._of(self.node_index)

    @cached_property
    def node_index(self) -> np.ndarray:
        """The indices of `nodes` in `tree`."""
        index, _ = self.tree.indices(np.arange(len(self)))
        return index[~self._have_types((TARGET,))[index]]

    @cached_property
    def shown(self) -> np.ndarray:
        """The indices of `boxes` in `tree`."""
        hidden = self._have_types(NOT_SHOWN)
        index, place = self.tree.indices(np.arange(len(self)))
        if not hidden.any():
            return index
        is_tree = np.bincount(place, weights=hidden[index], minlength=len(self))[place] > 0
        has_extent = (self.tree.values[index, 2:] > 0).all(axis=1)
        return index[~is_tree | (has_extent & ~hidden[index])]

    def _have_types(self, types: Sequence[str]) -> np.ndarray:
        return _mask(pc.is_in(self.element_type, pa.array(types)))

    def _of(self, index: np.ndarray) -> Boxes:
        """Some boxes of `tree`, in its order; all of them are not copied."""
        if len(index) == len(self.tree.values):
            return self.tree
        counts = np.bincount(np.searchsorted(self.tree.starts, index, side="right") - 1, minlength=len(self))
        return Boxes(self.tree.values[index], np.cumsum(counts) - counts, counts)

    def __len__(self) -> int:
        return len(self.step)

    def answered(self, constants: Mapping[str, Action]) -> "StepTable":
        """The same steps, each answered with the constant of its gold action's name; answers name no box."""
        columns = action_columns([constants.get(name) for name in ACTION_NAMES])
        no_box = np.full_like(self.predicted_box, np.nan)
        return replace(self, predicted=columns.take(self.gold.name), predicted_box=no_box)

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
            predicted_box=np.array([row.box or _NO_BOX for row in rows], np.float64).reshape(-1, 4),
            size=np.array([row.size or (0, 0) for row in rows], np.int64).reshape(-1, 2),
            instruction=pa.array([row.instruction or "" for row in rows], pa.string()),
            tree=Boxes(values, np.cumsum(counts) - counts, counts),
            element_text=pa.array([element.text for row in rows for element in row.elements], pa.string()),
            element_type=pa.array([element.type for row in rows for element in row.elements], pa.string()),
        )


def action_columns(actions: Sequence[Action | None]) -> Actions:
    """The same actions as columns; None becomes `NO_ACTION`."""
    return Actions(
        kind=np.array([NO_ACTION if action is None else action.kind for action in actions], np.int8),
        touch=_points([NO_POINT if action is None else action.touch_yx for action in actions]),
        lift=_points([NO_POINT if action is None else action.lift_yx for action in actions]),
        text=pa.array(["" if action is None else action.text for action in actions], pa.string()),
    )


def _points(points: list[tuple[float, float]]) -> np.ndarray:
    return np.array(points, np.float64).reshape(-1, 2)


def _name_of_kind() -> np.ndarray:
    """The index in `ACTION_NAMES` for each kind, `tap` for a gesture; the last entry is that of `NO_ACTION`, -1."""
    names = np.full(max(ActionKind) + 2, UNPARSED_NAME, np.int8)
    for kind in ActionKind:
        names[kind] = ACTION_NAMES.index("tap" if kind is ActionKind.DUAL_POINT else kind.short_name)
    return names


_NAME_OF_KIND = _name_of_kind()


Rule = Callable[[StepTable, np.ndarray], np.ndarray]
"""Maps a table and the rows (R,) that a rule judges to whether each row matches, bool (R,)."""


def all_match(table: StepTable, rows: np.ndarray) -> np.ndarray:
    return np.ones(len(rows), bool)


TextRule = Callable[[str, str], bool]
"""Whether a gold and a predicted text match."""


def by_text(rule: TextRule, without: str | None = None) -> Rule:
    """A rule on the texts of two actions. `without` stands for the text of an answer without one."""

    def judge(table: StepTable, rows: np.ndarray) -> np.ndarray:
        gold, predicted = (actions.text.take(rows).to_pylist() for actions in (table.gold, table.predicted))
        if without is not None:
            has_text = np.isin(table.predicted.kind[rows], KINDS_WITH_TEXT)
            predicted = [text if has else without for text, has in zip(predicted, has_text, strict=True)]
        return np.array([rule(*pair) for pair in zip(gold, predicted, strict=True)], bool)

    return judge


Steps = Path | StepTable | Sequence[Prediction] | Iterator[StepTable]
"""Steps to score: a predictions file, a table, a list, or tables that are read once."""

_STEPS_AT_ONCE = 4096
_NEVER_NULL = ("episode_id", "subset", "goal", "step", "episode_length", "gold", "elements", "text")
_COLUMNS = (*_NEVER_NULL, "predicted", "box", "size", "instruction")
"""`goal` and `text` are read only to find rows without them before a page shows them."""


def step_tables(source: Steps) -> Iterator[StepTable]:
    """The steps in tables, of a file or a list of at most a few thousand steps each.

    Raises DatasetError naming file and row if a row of a file is not a valid step.
    """
    if isinstance(source, StepTable):
        yield source
    elif isinstance(source, Path):
        yield from _read(source)
    elif isinstance(source, Iterator):
        yield from source
    else:
        for start in range(0, len(source), _STEPS_AT_ONCE):
            yield StepTable.of(source[start : start + _STEPS_AT_ONCE])


def _read(path: Path) -> Iterator[StepTable]:
    row = 0
    with open_predictions(path) as file:
        for batch in file.batches(_STEPS_AT_ONCE, _COLUMNS):
            try:
                yield _table(batch)
            except _WrongRowError as error:
                raise DatasetError(f"{path}, row {row + error.row}: {error}") from None
            row += len(batch)


class _WrongRowError(ValueError):
    """`row` of a batch is not a valid step."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row = row


def _table(batch: pa.RecordBatch) -> StepTable:
    for name in _NEVER_NULL:
        _refuse(_mask(batch[name].is_null()), f"{name} is missing")
    gold, predicted = _actions(batch["gold"]), _actions(batch["predicted"])
    _check(gold, "gold")
    _check(predicted, "predicted", _mask(batch["predicted"].is_null()))
    return StepTable(
        episode_id=batch["episode_id"],
        subset=batch["subset"],
        step=batch["step"].to_numpy().astype(np.int64),
        episode_length=batch["episode_length"].to_numpy().astype(np.int64),
        gold=gold,
        predicted=predicted,
        predicted_box=_columns(batch["box"]),
        size=np.column_stack([side.fill_null(0).to_numpy() for side in batch["size"].flatten()]).astype(np.int64),
        instruction=batch["instruction"].fill_null(""),
        tree=_boxes(batch["elements"]),
        element_text=batch["elements"].values.field("text"),
        element_type=batch["elements"].values.field("type"),
    )


def _actions(column: pa.StructArray) -> Actions:
    kind = column.field("kind").fill_null(NO_ACTION).to_numpy()
    touch, lift = (_columns(column.field(name)) for name in ("touch", "lift"))
    absent = kind == NO_ACTION
    touch[absent], lift[absent] = NO_POINT, NO_POINT
    return Actions(kind, touch, lift, column.field("text").fill_null(""))


def _boxes(column: pa.ListArray) -> Boxes:
    offsets = column.offsets.to_numpy().astype(np.int64)
    values = _columns(column.values.field("box"))
    counts = np.diff(offsets)
    if not np.isfinite(values[offsets[0] : offsets[-1]]).all():
        finite = np.append(np.isfinite(values).all(axis=1), True)
        bad = [not finite[start : start + count].all() for start, count in zip(offsets, counts, strict=False)]
        _refuse(np.array(bad), "an element's box is missing or not finite")
    return Boxes(values, offsets[:-1], counts)


def _columns(column: pa.StructArray) -> np.ndarray:
    """A column of float64 for each field, (N, fields); NaN for missing values."""
    return np.column_stack([field.fill_null(np.nan).to_numpy() for field in column.flatten()])


def _check(actions: Actions, what: str, absent: np.ndarray | None = None) -> None:
    """The same validation as in `Action`; rows under the mask `absent` are exempt."""
    kinds = np.isin(actions.kind, [int(kind) for kind in ActionKind])
    fits = _mask(pc.equal(actions.text, "")) | np.isin(actions.kind, [int(kind) for kind in KINDS_WITH_TEXT])
    for points, users in ((actions.touch, KINDS_WITH_TOUCH), (actions.lift, (ActionKind.DUAL_POINT,))):
        on_screen = ((points >= 0) & (points <= 1)).all(axis=1)
        is_used = np.isin(actions.kind, [int(kind) for kind in users])
        fits &= np.where(is_used, on_screen, (points == NO_POINT[0]).all(axis=1))
    wrong = ~(kinds & fits)
    _refuse(wrong if absent is None else wrong & ~absent, f"{what} is not an action: kind, points and text do not fit")


def _refuse(wrong: np.ndarray, what: str) -> None:
    if wrong.any():
        raise _WrongRowError(int(wrong.argmax()), what)


def _mask(column: pa.BooleanArray) -> np.ndarray:
    return column.to_numpy(zero_copy_only=False)
