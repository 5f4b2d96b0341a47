"""Every metric of a result, computed from the predictions alone.

A step is right or wrong (`verdicts`). An answer that is not an action is wrong, and the denominator is always the
number of gold steps. All shares are percentages; a share without a denominator (swipes of a run without swipes, a
subset without episodes) is None.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vlm_agent.datasets.selection import published_subsets
from vlm_agent.episodes import ACTION_NAMES, shown_action_names
from vlm_agent.evaluation.scoring.aitz.metrics import aitz_rows
from vlm_agent.evaluation.scoring.dialects import SCORERS, describe_scorers
from vlm_agent.evaluation.scoring.judged import OVERALL, Groups, JudgedSteps, judge_steps, members_of
from vlm_agent.evaluation.scoring.measures import (
    SHARES,
    SHARES_OF_EPISODES,
    Quotient,
    interval,
    interval_of_mean,
    interval_of_share,
    mean_of,
    mean_resampled,
    percent,
    quotients,
    resampled,
)
from vlm_agent.evaluation.scoring.steps import Steps

__all__ = ["OVERALL", "SHARES", "UNPARSED", "Groups", "headline", "overall_weights", "score", "shown_sets"]

UNPARSED = "unparsed"
"""The column of the confusion table for answers that are not an action."""


def score(source: JudgedSteps | Steps, groups: Groups | None = None, scorers: Sequence[str] = SCORERS) -> dict:
    """All numbers of a run (a predictions file, or its steps), ready for JSON.

    The result is `{"official": {"overall": row, subset: row …, group: row …}, "strict": {the same}, …, "scorers": …,
    "confusion": …, "by_step": …, "by_length": …}`. A row holds the percentages of `SHARES`, their 95 % `intervals`
    (`interval` is that of the partial match), `episodes` and `steps`:

    - `partial_match`: right steps / episode length, mean over episodes (AITW's score); `step_match`: over steps;
      `complete_match`: episodes without a wrong step; `goal_progress`: steps before the first wrong one / episode
      length, mean over episodes (AitZ, Zhang et al. 2024, section 4.2).
    - `action_type`: predictions with the gold action's name (a swipe for a tap is wrong); `tap`, `swipe`: right steps
      among those whose gold action is one; `typed_text`: equal text (in NFC) where the gold action types, for every
      scorer; `parse_failures`: answers that are not an action.

    The five AITW subsets always have a row. `overall` is the mean over the subsets with episodes, which its `subsets`
    lists; each share averages the subsets in which it is defined. `groups` names additional sets of episode ids. A
    group's row covers its own episodes; ids that are not in the run are ignored.

    Intervals are by bootstrap over episodes, for the complete match Wilson's. A bootstrap whose resamples are all equal
    gives no interval, None: the episodes do not differ, or there is one. Nor does that of `overall` if one of its
    subsets has a single episode in which the share is defined. A subset of several equal episodes adds no width to it.

    `scorers` holds the rule and the source of each scorer. `confusion[gold name][predicted name]` counts steps.
    `kinds` has percentages of all steps by name of action (D-PoT, tables 6 and 9): `gold`, `predicted`, and for each
    scorer those that are predicted and right. `by_step` has, for each step index from 0, the number of steps and the
    share right by each scorer; `by_length` has the same for each episode length, with the number of episodes. With a
    scorer of AitZ, `aitz` holds the table of `aitz_rows`.

    Raises DatasetError if a step is missing or occurs twice, or if a group has a subset's name; UserError if a scorer
    is unknown.
    """
    notes = describe_scorers(scorers)
    steps = judge_steps(source, scorers)
    members, subsets = members_of(steps, groups)
    aitz = aitz_rows(steps, scorers)
    return {
        **{scorer: _rows(steps, scorer, members, subsets) for scorer in scorers},
        "scorers": notes,
        "confusion": _confusion(steps),
        "kinds": _kinds(steps, scorers),
        "by_step": list(_by_step(steps, scorers)),
        "by_length": list(_by_length(steps, scorers)),
        **({"aitz": aitz} if aitz else {}),
    }


def headline(scores: Mapping) -> dict[str, dict[str, float | None]]:
    """The partial match alone from a result of `score`: {scorer: {overall, subset …, group …: percent}}."""
    return {scorer: {name: row["partial_match"] for name, row in scores[scorer].items()} for scorer in SCORERS}


def shown_sets(rows: Mapping[str, Mapping]) -> tuple[str, ...]:
    """The sets of episodes that tables show, of the rows of a scorer in `score` or `comparison.compare`: overall, the
    subsets with episodes, and every group. A group without episodes is shown: its ids may be those of other data."""
    hidden = set(published_subsets()).difference(rows[OVERALL]["subsets"])
    return tuple(name for name in rows if name not in hidden)


def overall_weights(source: JudgedSteps | Steps) -> np.ndarray:
    """The weight of each step in the overall partial match, float64 (N,); the weights sum to 1."""
    steps = judge_steps(source, ())
    _, per_episode, subset_sizes = np.unique(steps.subsets, return_inverse=True, return_counts=True)
    weights = 1 / (steps.lengths * subset_sizes[per_episode] * len(subset_sizes))
    return weights[steps.episode]


class _Cell(NamedTuple):
    """A share in percent, its values in the resamples (RESAMPLES,), and its interval."""

    value: float | None
    drawn: np.ndarray
    edges: list[float] | None


def _rows(steps: JudgedSteps, scorer: str, members: dict[str, np.ndarray], subsets: list[str]) -> dict[str, dict]:
    by_share = quotients(steps, scorer)
    cells = {
        name: {share: _cell(share, (of[0][mask], of[1][mask]), name) for share, of in by_share.items()}
        for name, mask in members.items()
    }
    overall = {share: _mean(share, [cells[name][share] for name in subsets]) for share in SHARES}
    everywhere = np.ones(len(steps.lengths), bool)
    return {OVERALL: _row(overall, everywhere, steps, scorer) | {"subsets": subsets}} | {
        name: _row(cells[name], mask, steps, scorer) for name, mask in members.items()
    }


def _cell(share: str, quotient: Quotient, name: str) -> _Cell:
    drawn = resampled(*quotient, f"{name} {share}")
    return _Cell(percent(*quotient), drawn, interval_of_share(share, quotient, drawn))


def _mean(share: str, cells: Sequence[_Cell]) -> _Cell:
    """The mean over subsets."""
    drawn = mean_resampled([(cell.value, cell.drawn) for cell in cells])
    parts = [(cell.value, cell.edges) for cell in cells]
    edges = interval_of_mean(parts) if share in SHARES_OF_EPISODES else interval(drawn, lowest=0.0)
    return _Cell(mean_of([cell.value for cell in cells]), drawn, edges)


def _row(cells: Mapping[str, _Cell], mask: np.ndarray, steps: JudgedSteps, scorer: str) -> dict:
    intervals = {share: cell.edges for share, cell in cells.items()}
    return {
        **{share: cell.value for share, cell in cells.items()},
        "interval": intervals["partial_match"],
        "intervals": intervals,
        "episodes": int(mask.sum()),
        "steps": int(steps.counted[scorer][mask[steps.episode]].sum()),
    }


def _confusion(steps: JudgedSteps) -> dict[str, dict[str, int]]:
    columns = (*ACTION_NAMES, UNPARSED)
    cells = steps.gold.name.astype(np.int64) * len(columns) + steps.predicted
    counts = np.bincount(cells, minlength=len(ACTION_NAMES) * len(columns)).reshape(-1, len(columns))
    present = {columns[index] for index in np.flatnonzero(counts.sum(axis=0))}
    present |= {ACTION_NAMES[index] for index in np.flatnonzero(counts.sum(axis=1))}
    shown = shown_action_names(present)
    return {
        gold: {name: int(counts[ACTION_NAMES.index(gold), columns.index(name)]) for name in (*shown, UNPARSED)}
        for gold in shown
    }


def _kinds(steps: JudgedSteps, scorers: Sequence[str]) -> dict[str, dict[str, float | None]]:
    names = (*ACTION_NAMES, UNPARSED)
    kinds = {"gold": steps.gold.name, "predicted": steps.predicted}
    kinds |= {scorer: steps.predicted[steps.right[scorer]] for scorer in scorers}
    counts = {row: np.bincount(of, minlength=len(names)) for row, of in kinds.items()}
    shown = shown_action_names(
        {name for name, of in zip(names, counts["gold"] + counts["predicted"], strict=True) if of}
    )
    return {
        row: {name: percent(np.asarray(of[names.index(name)]), np.asarray(len(steps))) for name in (*shown, UNPARSED)}
        for row, of in counts.items()
    }


def _by_step(steps: JudgedSteps, scorers: Sequence[str]) -> Iterator[dict]:
    counts = np.bincount(steps.step)
    shares = _shares_by(steps, steps.step, len(counts), scorers)
    for step in np.flatnonzero(counts).tolist():
        yield {"step": step, "steps": int(counts[step])} | shares[step]


def _by_length(steps: JudgedSteps, scorers: Sequence[str]) -> Iterator[dict]:
    lengths, length = np.unique(steps.lengths, return_inverse=True)
    episodes = np.bincount(length, minlength=len(lengths))
    shares = _shares_by(steps, length[steps.episode], len(lengths), scorers)
    for index, steps_each in enumerate(lengths.tolist()):
        count = int(episodes[index])
        yield {"length": steps_each, "episodes": count, "steps": count * steps_each} | shares[index]


def _shares_by(
    steps: JudgedSteps, place: np.ndarray, places: int, scorers: Sequence[str]
) -> list[dict[str, float | None]]:
    """The share of right steps of each place among those that a scorer counts. `place`: of each step."""
    counted = {scorer: np.bincount(place[steps.counted[scorer]], minlength=places) for scorer in scorers}
    right = {scorer: np.bincount(place[steps.right[scorer]], minlength=places) for scorer in scorers}
    return [{scorer: percent(right[scorer][at], counted[scorer][at]) for scorer in scorers} for at in range(places)]
