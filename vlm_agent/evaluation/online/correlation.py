"""Whether two scores go together: over checkpoints of one run, say, the offline match and the success on a phone."""

from collections.abc import Mapping, Sequence

import numpy as np


def correlation(first: Sequence[float], second: Sequence[float]) -> dict[str, float | int | None]:
    """`pearson` and `spearman` (ties share the mean of their ranks) of `n` pairs; None where one side does not vary,
    or there are fewer than two.

    With few pairs a large number means little: of five unrelated ones, one in twenty is beyond ±0.88.
    Raises ValueError where the sides differ in length.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} scores cannot be paired with {len(second)}")
    pair = np.array([first, second], np.float64)
    return {"n": len(first), "pearson": _pearson(*pair), "spearman": _pearson(*map(_ranks, pair))}


def correlate_success(rows: Sequence[Mapping[str, float]]) -> dict[str, dict]:
    """Of every score in `rows` (one a run or checkpoint, all with the same keys) with their `success`."""
    success = [row["success"] for row in rows]
    names = [name for name in (rows[0] if rows else ()) if name != "success"]
    return {name: correlation([row[name] for row in rows], success) for name in names}


def _pearson(first: np.ndarray, second: np.ndarray) -> float | None:
    first, second = first - first.mean() if len(first) else first, second - second.mean() if len(second) else second
    scale = np.sqrt((first**2).sum() * (second**2).sum())
    return None if len(first) < 2 or scale == 0 else float((first * second).sum() / scale)


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]
