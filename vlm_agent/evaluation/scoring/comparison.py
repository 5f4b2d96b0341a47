"""Compares two runs on the same steps: differences, their paired intervals, and the steps that changed.

Both runs are resampled together, episode by episode, so that episodes that are hard for both cancel: a paired interval
is narrower than the intervals of the two runs suggest.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.scoring import measures
from vlm_agent.evaluation.scoring.dialects import SCORERS, describe_scorers
from vlm_agent.evaluation.scoring.judged import OVERALL, Groups, JudgedSteps, judge_steps, members_of
from vlm_agent.evaluation.scoring.steps import Steps


def compare(
    first: JudgedSteps | Steps,
    second: JudgedSteps | Steps,
    groups: Groups | None = None,
    scorers: Sequence[str] = SCORERS,
    names: tuple[str, str] = ("the first run", "the second run"),
) -> dict:
    """The differences between the second and the first run, ready for JSON.

    The result is `{scorer: {"overall": row, subset: row …, group: row …}, …, "changed": {scorer: {"right_to_wrong":
    {episode id: [step, …]}, "wrong_to_right": {the same}}}, "scorers": …}`. A row maps each of `metrics.SHARES` to

    - `before` (the first run) and `now` (the second), percent, and `difference`, now - before in points;
    - `interval`, 95 % of the difference, by a bootstrap over episodes that resamples both runs together; of complete
      match by `measures.paired_proportions`. None where `metrics.score` has none.

    A row also has the numbers of `episodes` and `steps`. Subsets, groups and shares are those of `metrics.score`,
    and `overall` is over the subsets in which both runs have the share; steps count from 0.

    `names`: the runs in errors. Raises DatasetError naming the first difference if the gold steps of the runs differ,
    and every error of `metrics.score`.
    """
    notes = describe_scorers(scorers)
    before, after = in_same_order(judge_steps(first, scorers), judge_steps(second, scorers), names)
    members, subsets = members_of(before, groups)
    return {
        **{scorer: _rows(before, after, scorer, members, subsets) for scorer in scorers},
        "changed": {scorer: _changed(before, after, scorer) for scorer in scorers},
        "scorers": notes,
    }


def in_same_order(first: JudgedSteps, second: JudgedSteps, names: tuple[str, str]) -> tuple[JudgedSteps, JudgedSteps]:
    """Both runs with their steps in one order. Raises DatasetError naming the first difference if the gold steps of the
    runs `names` differ."""
    ordered = _in_order(first), _in_order(second)
    _check_same_gold(*ordered, names)
    return ordered


def _in_order(steps: JudgedSteps) -> JudgedSteps:
    """The same steps, sorted by episode id and step."""
    by_id = np.argsort(steps.episode_ids, kind="stable")
    rank = np.empty_like(by_id)
    rank[by_id] = np.arange(len(by_id))
    order = np.lexsort((steps.step, rank[steps.episode]))
    return replace(
        steps,
        episode_ids=steps.episode_ids[by_id],
        subsets=steps.subsets[by_id],
        lengths=steps.lengths[by_id],
        episode=rank[steps.episode][order],
        gold=steps.gold.take(order),
        right={scorer: right[order] for scorer, right in steps.right.items()},
        counted={scorer: counted[order] for scorer, counted in steps.counted.items()},
        **{
            name: getattr(steps, name)[order] for name in ("step", "predicted", "same_text", "elements", "element_sums")
        },
    )


def _check_same_gold(first: JudgedSteps, second: JudgedSteps, names: tuple[str, str]) -> None:
    for one, other, has, lacks in ((first, second, names[0], names[1]), (second, first, names[1], names[0])):
        only = np.setdiff1d(one.episode_ids, other.episode_ids)
        if len(only):
            raise DatasetError(
                f"{has} has {len(only)} episodes that {lacks} lacks, starting with {only[0]}; compare runs over the "
                "same episodes"
            )
    for what, differs in (("subset", first.subsets != second.subsets), ("length", first.lengths != second.lengths)):
        if differs.any():
            raise DatasetError(
                f"episode {first.episode_ids[differs.argmax()]} has a different {what} in {names[0]} and in {names[1]}"
            )
    texts = (np.array(steps.gold.text.to_pylist(), object) for steps in (first, second))
    differences = {
        "gold action": (first.gold.kind != second.gold.kind)
        | (first.gold.touch != second.gold.touch).any(axis=1)
        | (first.gold.lift != second.gold.lift).any(axis=1),
        "gold text": np.not_equal(*texts).astype(bool),
        "elements": (first.elements != second.elements) | (first.element_sums != second.element_sums),
    }
    for what, differs in differences.items():
        if differs.any():
            row = differs.argmax()
            raise DatasetError(
                f"episode {first.episode_ids[first.episode[row]]}, step {first.step[row]}: {names[0]} and {names[1]} "
                f"differ in the {what}, here and in {differs.sum() - 1} other steps; they were not evaluated on "
                "the same data"
            )


def _rows(
    before: JudgedSteps, after: JudgedSteps, scorer: str, members: dict[str, np.ndarray], subsets: list[str]
) -> dict[str, dict]:
    pair = measures.quotients(before, scorer), measures.quotients(after, scorer)
    # A scorer that leaves out unread answers may count other episodes in each run: they are no pairs then.
    paired = (share for share, (_, possible) in pair[0].items() if np.array_equal(possible, pair[1][share][1]))
    proportions = set(measures.SHARES_OF_EPISODES).intersection(paired)
    rows = {name: _cells(pair, mask, name, proportions) for name, mask in members.items()}
    overall = {
        share: _mean_cell([rows[name][share] for name in subsets], share in proportions) for share in measures.SHARES
    }
    everywhere = np.ones(len(before.lengths), bool)
    return {OVERALL: _row(overall, everywhere, before) | {"subsets": subsets}} | {
        name: _row(rows[name], mask, before) for name, mask in members.items()
    }


@dataclass(frozen=True)
class _Cell:
    """A share of both runs in percent, resampled differences (RESAMPLES,), and the interval of the difference."""

    first: float | None
    second: float | None
    drawn: np.ndarray
    interval: list[float] | None

    @property
    def difference(self) -> float | None:
        return None if self.first is None or self.second is None else self.second - self.first


_Pair = tuple[dict[str, measures.Quotient], dict[str, measures.Quotient]]


def _cells(pair: _Pair, mask: np.ndarray, name: str, proportions: Collection[str]) -> dict[str, _Cell]:
    """By share. `proportions`: the shares of episodes that both runs count."""
    cells = {}
    for share in measures.SHARES:
        old, new = ((added[mask], possible[mask]) for added, possible in (run[share] for run in pair))
        drawn = measures.resampled_difference(old, new, f"{name} {share}")
        edges = _of_proportions(old, new) if share in proportions else measures.interval(drawn)
        cells[share] = _Cell(measures.percent(*old), measures.percent(*new), drawn, edges)
    return cells


def _of_proportions(old: measures.Quotient, new: measures.Quotient) -> list[float] | None:
    """Numerators and denominators are 0 or 1."""
    gains, losses = (int((one[0] > other[0]).sum()) for one, other in ((new, old), (old, new)))
    return measures.paired_proportions(gains, losses, int(old[1].sum()))


def _mean_cell(cells: list[_Cell], is_proportion: bool) -> _Cell:
    """The mean over the subsets in which both runs have the share."""
    cells = [cell for cell in cells if cell.difference is not None]
    drawn = measures.mean_resampled([(cell.difference, cell.drawn) for cell in cells])
    parts = [(cell.difference, cell.interval) for cell in cells]
    edges = measures.interval_of_mean(parts) if is_proportion else measures.interval(drawn)
    first, second = [cell.first for cell in cells], [cell.second for cell in cells]
    return _Cell(measures.mean_of(first), measures.mean_of(second), drawn, edges)


def _row(cells: dict[str, _Cell], mask: np.ndarray, steps: JudgedSteps) -> dict:
    counts = {"episodes": int(mask.sum()), "steps": int(steps.lengths[mask].sum())}
    return {
        share: {"before": cell.first, "now": cell.second, "difference": cell.difference, "interval": cell.interval}
        for share, cell in cells.items()
    } | counts


def _changed(before: JudgedSteps, after: JudgedSteps, scorer: str) -> dict[str, dict[str, list[int]]]:
    counted = before.counted[scorer] & after.counted[scorer]
    old, new = before.right[scorer], after.right[scorer]
    return {
        "right_to_wrong": _by_episode(before, counted & old & ~new),
        "wrong_to_right": _by_episode(before, counted & ~old & new),
    }


def _by_episode(steps: JudgedSteps, rows: np.ndarray) -> dict[str, list[int]]:
    changed: dict[str, list[int]] = {}
    for episode, step in zip(steps.episode[rows].tolist(), steps.step[rows].tolist(), strict=True):
        changed.setdefault(str(steps.episode_ids[episode]), []).append(step)
    return changed
