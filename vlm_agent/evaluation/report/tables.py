"""The numbers of `metrics.score` and `comparison.compare` as rows and columns, and as curves of an SVG."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vlm_agent.evaluation.scoring.aitz.metrics import MEASURES
from vlm_agent.evaluation.scoring.measures import SHARES
from vlm_agent.evaluation.scoring.metrics import OVERALL, UNPARSED, shown_sets


@dataclass(frozen=True)
class Cell:
    """A percentage, or a difference in points, with its 95 % interval; None if undefined."""

    value: float | None
    interval: list[float] | None


@dataclass(frozen=True)
class Numbers:
    """A table: `rows` are (name, one cell for each column)."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    counts: tuple[tuple[int, int], ...] = ()
    """(episodes, steps) of each column, where columns are sets of episodes."""


@dataclass(frozen=True)
class ScorerTables:
    """All tables of one scorer: runs by set of episodes, runs by share, and each run's shares by set."""

    name: str
    rule: str
    source: str
    by_set: Numbers
    by_share: Numbers
    by_run: tuple[tuple[str, Numbers], ...]
    aitz: Numbers | None
    """AitZ's metrics of the runs, if it is a scorer of AitZ."""


def scorer_tables(runs: Mapping[str, Mapping]) -> Iterator[ScorerTables]:
    """The tables of each scorer of the first run; a run without this scorer has no row."""
    main = next(iter(runs.values()))
    for scorer, about in main["scorers"].items():
        scored = {name: run[scorer] for name, run in runs.items() if scorer in run}
        sets = shown_sets(main[scorer])
        yield ScorerTables(
            name=scorer,
            rule=about["rule"],
            source=about["source"],
            by_set=Numbers(
                sets,
                tuple((name, tuple(_cell(rows[s], "partial_match") for s in sets)) for name, rows in scored.items()),
                tuple((main[scorer][s]["episodes"], main[scorer][s]["steps"]) for s in sets),
            ),
            by_share=Numbers(
                SHARES,
                tuple((name, tuple(_cell(rows[OVERALL], share) for share in SHARES)) for name, rows in scored.items()),
            ),
            by_run=tuple((name, _shares_by_set(rows, sets)) for name, rows in scored.items()),
            aitz=_aitz(runs, scorer),
        )


def summary_table(runs: Mapping[str, Mapping]) -> Numbers:
    """The overall partial match of every run by every scorer of the first run; undefined where a run has none by it."""
    scorers = tuple(next(iter(runs.values()))["scorers"])
    rows = (
        (name, tuple(_cell(run[one][OVERALL], "partial_match") if one in run else Cell(None, None) for one in scorers))
        for name, run in runs.items()
    )
    return Numbers(scorers, tuple(rows))


def summary_of_comparison(comparison: Mapping) -> Numbers:
    """The difference of the overall partial match by every scorer of a `comparison.compare` result."""
    scorers = tuple(comparison["scorers"])
    of_scorers = (comparison[scorer][OVERALL]["partial_match"] for scorer in scorers)
    cells = tuple(Cell(of_one["difference"], of_one["interval"]) for of_one in of_scorers)
    return Numbers(scorers, (("partial match", cells),))


def _aitz(runs: Mapping[str, Mapping], scorer: str) -> Numbers | None:
    rows = {name: run["aitz"][scorer] for name, run in runs.items() if scorer in run.get("aitz", {})}
    if not rows:
        return None
    cells = ((name, tuple(Cell(row[m]["value"], row[m]["interval"]) for m in MEASURES)) for name, row in rows.items())
    return Numbers(MEASURES, tuple(cells))


def comparison_tables(comparison: Mapping) -> Iterator[tuple[str, Numbers, dict[str, tuple[int, int]]]]:
    """For each scorer of a `comparison.compare` result: name, differences, (steps, episodes) that changed each way."""
    for scorer in comparison["scorers"]:
        rows = comparison[scorer]
        sets = shown_sets(rows)
        numbers = Numbers(
            sets,
            tuple(
                (share, tuple(Cell(rows[s][share]["difference"], rows[s][share]["interval"]) for s in sets))
                for share in SHARES
            ),
        )
        changed = comparison["changed"][scorer]
        yield scorer, numbers, {way: (sum(map(len, ids.values())), len(ids)) for way, ids in changed.items()}


def confusion_table(counts: Mapping[str, Mapping[str, int]]) -> dict:
    """Rows are gold kinds, columns the kinds that occur; each cell has its count and its share of the row."""
    totals = {gold: sum(row.values()) for gold, row in counts.items()}
    rows = [gold for gold, total in totals.items() if total]
    columns = [name for name in (*counts, UNPARSED) if name in rows or any(row[name] for row in counts.values())]
    cells = {
        gold: {name: {"count": counts[gold][name], "share": counts[gold][name] / totals[gold]} for name in columns}
        for gold in rows
    }
    return {"rows": rows, "columns": columns, "cells": cells, "totals": totals}


def _shares_by_set(rows: Mapping[str, Mapping], sets: tuple[str, ...]) -> Numbers:
    by_share = tuple((share, tuple(_cell(rows[name], share) for name in sets)) for share in SHARES)
    return Numbers(sets, by_share, tuple((rows[name]["episodes"], rows[name]["steps"]) for name in sets))


def _cell(row: Mapping, share: str) -> Cell:
    return Cell(row[share], row["intervals"][share])


_PLOT = {"width": 640, "height": 220, "left": 40, "right": 120, "top": 12, "bottom": 34}
_LABEL_HEIGHT = 12


def curve(rows: Sequence[Mapping], label: str, counted: str, scorers: Sequence[str]) -> dict:
    """A line for each of `scorers`, the percent of right steps, over bars of the counts.

    `rows` are `by_step` or `by_length` of `metrics.score`, in order of the horizontal axis. `label` is the key of the
    horizontal axis, `counted` the key of the counts.
    """
    inner_width = _PLOT["width"] - _PLOT["left"] - _PLOT["right"]
    base = _PLOT["height"] - _PLOT["bottom"]
    inner_height = base - _PLOT["top"]
    slot = inner_width / max(1, len(rows))
    most = max((row[counted] for row in rows), default=1)

    def y(share: float) -> float:
        return round(base - share / 100 * inner_height, 1)

    centres = [round(_PLOT["left"] + (index + 0.5) * slot, 1) for index in range(len(rows))]
    at = list(zip(centres, rows, strict=True))
    lines = {scorer: [(x, y(row[scorer]), row) for x, row in at if row[scorer] is not None] for scorer in scorers}
    return {
        **_PLOT,
        "base": base,
        "label": label,
        "counted": counted,
        "most": most if rows else 0,
        "grid": [(share, y(share)) for share in (0, 25, 50, 75, 100)],
        "bars": [(round(x - slot * 0.35, 1), round(slot * 0.7, 1), y(100 * row[counted] / most), row) for x, row in at],
        "ticks": at[:: max(1, round(28 / slot))],
        "lines": lines,
        "names": _label_positions({scorer: points[-1][1] for scorer, points in lines.items() if points}),
    }


def _label_positions(heights: Mapping[str, float]) -> dict[str, float]:
    """Label positions from top to bottom, moved down where two labels would overlap."""
    positions: dict[str, float] = {}
    last = float("-inf")
    for name, height in sorted(heights.items(), key=lambda item: item[1]):
        last = max(height, last + _LABEL_HEIGHT)
        positions[name] = round(last, 1)
    return positions
