"""Every number of a result, from the predictions alone; one definition each.

A step is right or wrong (`verdicts`); an answer that is no action is a wrong step, and the denominator is always the
gold steps. All shares are percentages. A share of nothing (swipes where there is none, a subset without episodes) is
None.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vlm_agent.episodes import ACTION_NAMES, SUBSETS
from vlm_agent.evaluation.predictions import Prediction, check_complete
from vlm_agent.evaluation.verdicts import verdicts

OVERALL = "overall"
UNPARSED = "unparsed"
"""What the confusion table calls an answer that is no action."""

SHARES = (
    "partial_match",
    "step_match",
    "complete_match",
    "action_type",
    "tap",
    "swipe",
    "typed_text",
    "parse_failures",
)
_RESAMPLES = 1000
_DRAWS_AT_ONCE = 1 << 22


def score(
    predictions: Sequence[Prediction], groups: Mapping[str, Collection[str]] | None = None, seed: int = 0
) -> dict:
    """All numbers of a run, ready for JSON.

    `{"official": {"overall": row, subset: row …, group: row …}, "strict": {the same}, "confusion": …, "by_step": …}`.
    A row holds the percentages of `SHARES`, `interval` (95 %, of the partial match, by bootstrap over episodes),
    `episodes` and `steps`:

    - `partial_match`: right steps / episode length, mean over episodes (AITW's score); `step_match`: over steps;
      `complete_match`: episodes whose every step is right.
    - `action_type`: predictions of the gold action's name (a swipe for a tap is wrong); `tap`, `swipe`: right steps
      among those whose gold action is one; `typed_text`: exactly equal text among gold typing, for both scorers;
      `parse_failures`: answers that are no action.

    The five AITW subsets always have a row. `overall` is the mean of the subsets with episodes, named in its
    `subsets`; each share averages the subsets that have it. `groups` names further sets of episode ids; their rows
    are over their own episodes, and ids that are not in the run are ignored.

    `confusion[gold name][predicted name]` counts steps. `by_step` is, for each step index from 0, the number of steps
    and the share right by each scorer.

    Raises ValueError where a step of an episode is missing or twice, or where a group has a subset's name.
    """
    check_complete(predictions)
    groups = {} if groups is None else groups
    steps = _Steps.of(predictions)
    taken = {OVERALL, *steps.members} & set(groups)
    if taken:
        raise ValueError(f"groups named like a subset: {sorted(taken)}; choose other names")
    members = steps.members | {name: np.isin(steps.ids, list(ids)) for name, ids in groups.items()}
    matched = verdicts(predictions)
    return {
        **{scorer: _rows(steps, right, members, seed) for scorer, right in matched.items()},
        "confusion": _confusion(steps),
        "by_step": _by_step(predictions, matched),
    }


def headline(scores: Mapping) -> dict[str, dict[str, float | None]]:
    """Of what `score` returns, the partial match alone: {scorer: {overall, subset …, group …: percent}}."""
    return {
        scorer: {name: row["partial_match"] for name, row in scores[scorer].items()}
        for scorer in ("official", "strict")
    }


def overall_weights(predictions: Sequence[Prediction]) -> np.ndarray:
    """What each step adds to the overall partial match when it is right, float64 (N,); they sum to 1."""
    steps = _Steps.of(predictions)
    lengths = np.bincount(steps.episode)[steps.episode]
    weights = np.zeros(len(predictions))
    present = [mask for mask in steps.members.values() if mask.any()]
    for mask in present:
        weights[mask] = 1 / (lengths[mask] * len(np.unique(steps.episode[mask])) * len(present))
    return weights


@dataclass(frozen=True)
class _Steps:
    """Predictions as arrays (N,): episode number and id, names of the actions, and a mask for each subset."""

    ids: np.ndarray
    episode: np.ndarray
    gold: np.ndarray
    predicted: np.ndarray
    same_text: np.ndarray
    members: dict[str, np.ndarray]

    @classmethod
    def of(cls, predictions: Sequence[Prediction]) -> "_Steps":
        ids = np.array([row.episode_id for row in predictions], str)
        subsets = np.array([row.subset for row in predictions], str)
        return cls(
            ids=ids,
            episode=np.unique(ids, return_inverse=True)[1],
            gold=np.array([row.gold.name for row in predictions], str),
            predicted=np.array([UNPARSED if row.predicted is None else row.predicted.name for row in predictions], str),
            same_text=np.array(
                [row.predicted is not None and row.predicted.text == row.gold.text for row in predictions], bool
            ),
            members={name: subsets == name for name in dict.fromkeys((*SUBSETS, *np.unique(subsets).tolist()))},
        )


def _rows(steps: _Steps, right: np.ndarray, members: dict[str, np.ndarray], seed: int) -> dict:
    rows, resampled = {}, {}
    for name, mask in members.items():
        per_episode = _per_episode(steps.episode[mask], right[mask])
        resampled[name] = _bootstrap(per_episode, [seed, *name.encode()])
        rows[name] = _shares(steps, right, mask, per_episode) | {
            "interval": _interval(resampled[name]),
            "episodes": len(per_episode),
            "steps": int(mask.sum()),
        }
    present = [name for name in steps.members if rows[name]["episodes"]]
    overall = {share: _mean_of([rows[name][share] for name in present]) for share in SHARES} | {
        "interval": _interval(np.mean([resampled[name] for name in present], axis=0)) if present else None,
        "episodes": sum(rows[name]["episodes"] for name in present),
        "steps": len(right),
        "subsets": present,
    }
    return {OVERALL: overall} | rows


def _shares(steps: _Steps, right: np.ndarray, mask: np.ndarray, per_episode: np.ndarray) -> dict[str, float | None]:
    typing = mask & (steps.gold == "type")
    shares = {
        "partial_match": per_episode,
        "step_match": right[mask],
        "complete_match": per_episode == 1,
        "action_type": (steps.predicted == steps.gold)[mask],
        "tap": right[mask & (steps.gold == "tap")],
        "swipe": right[mask & (steps.gold == "swipe")],
        "typed_text": (steps.same_text & (steps.predicted == "type"))[typing],
        "parse_failures": (steps.predicted == UNPARSED)[mask],
    }
    return {name: _percent(values) for name, values in shares.items()}


def _per_episode(episode: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The share of right steps of each episode that occurs, float64 in [0, 1]."""
    lengths = np.bincount(episode)
    return np.bincount(episode, weights=right)[lengths > 0] / lengths[lengths > 0]


def _bootstrap(per_episode: np.ndarray, seed: list[int]) -> np.ndarray:
    """Means of `_RESAMPLES` draws of as many episodes with replacement; empty without episodes."""
    n = len(per_episode)
    if not n:
        return np.zeros(0)
    rng = np.random.default_rng(seed)
    at_once = max(1, _DRAWS_AT_ONCE // n)
    counts = [min(at_once, _RESAMPLES - start) for start in range(0, _RESAMPLES, at_once)]
    return np.concatenate([per_episode[rng.integers(0, n, (count, n))].mean(axis=1) for count in counts])


def _interval(means: np.ndarray) -> list[float] | None:
    return [float(edge) for edge in 100 * np.percentile(means, [2.5, 97.5])] if len(means) else None


def _percent(values: np.ndarray) -> float | None:
    return float(100 * np.mean(values)) if len(values) else None


def _mean_of(shares: list[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return float(np.mean(known)) if known else None


def _confusion(steps: _Steps) -> dict[str, dict[str, int]]:
    return {
        gold: {
            name: int(np.sum((steps.gold == gold) & (steps.predicted == name))) for name in (*ACTION_NAMES, UNPARSED)
        }
        for gold in ACTION_NAMES
    }


def _by_step(predictions: Sequence[Prediction], matched: dict[str, np.ndarray]) -> list[dict]:
    index = np.array([row.step for row in predictions], int)
    return [
        {"step": int(step), "steps": int(np.sum(index == step))}
        | {scorer: _percent(right[index == step]) for scorer, right in matched.items()}
        for step in np.unique(index)
    ]
