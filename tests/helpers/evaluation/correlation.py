"""Correlation of two scores over several runs, such as the offline partial match and the online success rate."""

from collections.abc import Mapping, Sequence


def correlation(first: Sequence[float], second: Sequence[float]) -> dict[str, float | int | None]:
    """`pearson` and `spearman` of `n` pairs; None with fewer than two pairs or where one side is constant.

    Few pairs say little: of five unrelated ones, one in twenty exceeds ±0.88.
    Raises ValueError where the sides differ in length.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} scores cannot be paired with {len(second)}")
    if len(set(first)) < 2 or len(set(second)) < 2:
        return {"n": len(first), "pearson": None, "spearman": None}
    from scipy.stats import pearsonr, spearmanr  # takes a second to import

    statistics = {"pearson": pearsonr(first, second), "spearman": spearmanr(first, second)}
    return {"n": len(first)} | {name: float(result.statistic) for name, result in statistics.items()}


def correlate_success(rows: Sequence[Mapping[str, float]]) -> dict[str, dict]:
    """{score: its `correlation` with `success`}, for each other key of `rows` (one a run, all with the same keys)."""
    success = [row["success"] for row in rows]
    names = [name for name in (rows[0] if rows else ()) if name != "success"]
    return {name: correlation([row[name] for row in rows], success) for name in names}
