"""From a predictions file, or a list of predictions, to tables of steps that fit in memory.

Scoring reads files this way; `predictions.read_predictions` makes objects of the same rows, for looking at a few.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlm_agent.datasets import DatasetError
from vlm_agent.episodes import NO_POINT, ActionKind
from vlm_agent.evaluation.predictions import Prediction, open_predictions
from vlm_agent.evaluation.step_table import NO_ACTION, Actions, Boxes, StepTable

Steps = Path | StepTable | Sequence[Prediction]
"""Where steps come from: a predictions file, a table, or a list."""

_STEPS_AT_ONCE = 4096
_COLUMNS = ("episode_id", "subset", "step", "episode_length", "gold", "predicted", "elements.list.element.box")


def step_tables(source: Steps) -> Iterator[StepTable]:
    """The steps of a predictions file, of a table or of a list, some thousands at a time.

    Raises DatasetError naming file and row where a file holds what is no step.
    """
    if isinstance(source, StepTable):
        yield source
    elif isinstance(source, Path):
        yield from _read(source)
    else:
        for start in range(0, len(source), _STEPS_AT_ONCE):
            yield StepTable.of(source[start : start + _STEPS_AT_ONCE])


def _read(path: Path) -> Iterator[StepTable]:
    row = 0
    with open_predictions(path) as file:
        for batch in file.iter_batches(_STEPS_AT_ONCE, columns=list(_COLUMNS), use_threads=False):
            try:
                yield _table(batch)
            except _WrongRowError as error:
                raise DatasetError(f"{path}, row {row + error.row}: {error}") from None
            row += len(batch)


class _WrongRowError(ValueError):
    """`row` of a batch is no step."""

    def __init__(self, row: int, what: str):
        super().__init__(what)
        self.row = row


def _table(batch: pa.RecordBatch) -> StepTable:
    for name in ("episode_id", "subset", "step", "episode_length", "gold", "elements"):
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
        boxes=_boxes(batch["elements"]),
    )


def _actions(column: pa.StructArray) -> Actions:
    kind = column.field("kind").fill_null(NO_ACTION).to_numpy()
    touch, lift = (_fixed(column.field(name), 2) for name in ("touch_yx", "lift_yx"))
    absent = kind == NO_ACTION
    touch[absent], lift[absent] = NO_POINT, NO_POINT
    return Actions(kind, touch, lift, column.field("text").fill_null(""))


def _boxes(column: pa.ListArray) -> Boxes:
    offsets = column.offsets.to_numpy().astype(np.int64)
    values = _fixed(column.values.field("box"), 4)
    counts = np.diff(offsets)
    if not np.isfinite(values[offsets[0] : offsets[-1]]).all():
        finite = np.append(np.isfinite(values).all(axis=1), True)
        bad = [not finite[start : start + count].all() for start, count in zip(offsets, counts, strict=False)]
        _refuse(np.array(bad), "an element's box is missing or not finite")
    return Boxes(values, offsets[:-1], counts)


def _fixed(column: pa.FixedSizeListArray, size: int) -> np.ndarray:
    """Float64 (N, size); NaN where there is nothing."""
    values = column.values.slice(column.offset * size, len(column) * size)
    return np.array(values.fill_null(np.nan), np.float64).reshape(-1, size)


def _check(actions: Actions, what: str, absent: np.ndarray | None = None) -> None:
    """As `Action` checks itself; rows that are `absent` need not be one."""
    kinds = np.isin(actions.kind, [int(kind) for kind in ActionKind])
    gesture = actions.kind == ActionKind.DUAL_POINT
    points = np.hstack([actions.touch, actions.lift])
    on_screen = ((points >= 0) & (points <= 1)).all(axis=1)
    fits = np.where(gesture, on_screen, (points == NO_POINT[0]).all(axis=1))
    fits &= _mask(pc.equal(actions.text, "")) | (actions.kind == ActionKind.TYPE)
    wrong = ~(kinds & fits)
    _refuse(wrong if absent is None else wrong & ~absent, f"{what} is no action: kind, points and text do not fit")


def _refuse(wrong: np.ndarray, what: str) -> None:
    if wrong.any():
        raise _WrongRowError(int(wrong.argmax()), what)


def _mask(column: pa.BooleanArray) -> np.ndarray:
    return column.to_numpy(zero_copy_only=False)
