"""A predictions file of AITW's size, written column by column."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.matcher.made_steps import BOXES, make_arrays
from vlm_agent.datasets.sources.aitw import SUBSETS
from vlm_agent.evaluation.predictions import BOX, POINT, SCHEMA, WRITING
from vlm_agent.files.parquet import ParquetWriter

_AT_ONCE = 4096
_MEAN_ELEMENTS = 28
_LENGTHS = (1, 16)
_WORDS = pa.array([f"word {number}" for number in range(500)])
_TYPED = np.array(["milk", "a new phone", "cheap hotels in Rome"])


def write_test_set(path: Path, steps: int, seed: int = 0) -> None:
    """Whole episodes of 1 … 16 steps, at least `steps` in all, on screens of up to `BOXES` elements."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(_LENGTHS[0], _LENGTHS[1] + 1, steps)
    lengths = lengths[: np.searchsorted(np.cumsum(lengths), steps) + 1]
    episode, length = np.repeat(np.arange(len(lengths)), lengths), np.repeat(lengths, lengths)
    step = np.arange(len(episode)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    with ParquetWriter(path, SCHEMA, **WRITING) as writer:
        for start in range(0, len(episode), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            writer.write_table(_rows(rng, episode[part], length[part], step[part]))


def _rows(rng: np.random.Generator, episode: np.ndarray, length: np.ndarray, step: np.ndarray) -> pa.Table:
    n = len(episode)
    arrays = make_arrays(n, int(rng.integers(1 << 31)))
    columns = {
        "episode_id": pa.array((10**15 + episode).astype(str)),
        "subset": pa.array(np.array(SUBSETS)[episode % len(SUBSETS)]),
        "goal": pa.array(["Search for the cheapest flight to Rome"] * n),
        "step": pa.array(step.astype(np.int32)),
        "episode_length": pa.array(length.astype(np.int32)),
        "gold": _actions(rng, arrays, "1"),
        "elements": _elements(rng, arrays["boxes"]),
        "text": pa.array(["tap at 34 55"] * n),
        "predicted": _actions(rng, arrays, "2", failures=rng.random(n) < 0.01),
        "tokens_read": np.full(n, 1000),
        "tokens_written": np.full(n, 8),
        "calls": np.ones(n, np.int32),
        "seconds": np.zeros(n),
        "from_prefill": np.zeros(n, bool),
    }
    return pa.table(columns, schema=SCHEMA)


def _actions(rng: np.random.Generator, arrays: dict, which: str, failures: np.ndarray | None = None) -> pa.StructArray:
    kind = arrays[f"type_{which}"].astype(np.int8)
    points = [_struct(arrays[f"{end}_{which}"], POINT) for end in ("touch", "lift")]
    text = pa.array(np.where(kind == 3, _TYPED[rng.integers(0, len(_TYPED), len(kind))], ""))
    names = ["kind", "touch", "lift", "text"]
    mask = None if failures is None else pa.array(failures)
    return pa.StructArray.from_arrays([pa.array(kind), *points, text], names=names, mask=mask)


def _elements(rng: np.random.Generator, boxes: np.ndarray) -> pa.ListArray:
    counts = np.minimum(rng.poisson(_MEAN_ELEMENTS, len(boxes)), BOXES)
    kept = boxes[np.arange(BOXES) < counts[:, None]]
    text = _WORDS.take(pa.array(rng.integers(0, len(_WORDS), len(kept))))
    fields = [_struct(kept, BOX), text, pa.array(["TEXT"] * len(kept))]
    elements = pa.StructArray.from_arrays(fields, names=["box", "text", "type"])
    return pa.ListArray.from_arrays(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), elements)


def _struct(values: np.ndarray, type_: pa.StructType) -> pa.StructArray:
    columns = [pa.array(np.ascontiguousarray(column), pa.float64()) for column in values.astype(np.float64).T]
    return pa.StructArray.from_arrays(columns, names=type_.names)
