"""The shares of a result, each defined once as a quotient of two sums over episodes.

An episode adds to the numerator and to the denominator, for example its right taps and its taps, or its fraction of
right steps and 1. Therefore one bootstrap over episodes gives the interval of any share.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from vlm_agent.episodes import ACTION_NAMES
from vlm_agent.evaluation.scoring.judged import JudgedSteps
from vlm_agent.evaluation.scoring.steps import UNPARSED_NAME

SHARES = (
    "partial_match",
    "step_match",
    "complete_match",
    "goal_progress",
    "action_type",
    "tap",
    "swipe",
    "typed_text",
    "parse_failures",
)
SHARES_OF_EPISODES = ("complete_match", "success")
"""Shares that are proportions of episodes, here and in `aitz`. Their interval is Wilson's, of paired differences Bonett
and Price's, which have a width where no episode, or every one, counts; a bootstrap has none there."""

SHARES_OF_TASKS = {
    "success": "interval",
    "false_completes": "false_completes_interval",
    "side_effects": "side_effects_interval",
}
"""Percentages of the tasks of an online evaluation: the key of each in a row, and that of its interval (Wilson's)."""

RESAMPLES = 1000

_SAME = 1e-9
"""Percents that differ by less are equal."""

_QUANTILE = NormalDist().inv_cdf(0.975)

Quotient = tuple[np.ndarray, np.ndarray]
"""Numerator and denominator of a share by episode, float64 (E,) each."""


def quotients(steps: JudgedSteps, scorer: str) -> dict[str, Quotient]:
    """Each of `SHARES` by episode, over the steps that the scorer counts."""
    right, counted, count = steps.right[scorer], steps.counted[scorer], steps.count
    lengths = count(counted)
    ones, divisor = (lengths > 0).astype(np.float64), np.maximum(lengths, 1)
    gold = {name: counted & (steps.gold.name == ACTION_NAMES.index(name)) for name in ("tap", "swipe", "type")}
    same_kind = counted & (steps.predicted == steps.gold.name)
    correct = count(right)
    reached = steps_to_first_error(steps.lengths, steps.episode, steps.step, right, counted)
    typed = gold["type"] & same_kind & steps.same_text
    return {
        "partial_match": (correct / divisor, ones),
        "step_match": (correct, lengths),
        "complete_match": ((correct == lengths) * ones, ones),
        "goal_progress": (reached / divisor, ones),
        "action_type": (count(same_kind), lengths),
        "tap": (count(right & gold["tap"]), count(gold["tap"])),
        "swipe": (count(right & gold["swipe"]), count(gold["swipe"])),
        "typed_text": (count(typed), count(gold["type"])),
        "parse_failures": (count(counted & (steps.predicted == UNPARSED_NAME)), lengths),
    }


def steps_to_first_error(
    lengths: np.ndarray, episode: np.ndarray, step: np.ndarray, right: np.ndarray, counted: np.ndarray
) -> np.ndarray:
    """The number of right steps before the first wrong one of each of E episodes, int (E,), among the steps that count.
    `lengths`: of the episodes. `episode`, `step`: of each of N steps, and its place in it."""
    wrong, reached = counted & ~right, lengths.copy()
    np.minimum.at(reached, episode[wrong], step[wrong])
    return np.bincount(episode[counted & (step < reached[episode])], minlength=len(reached))


def percent(added: np.ndarray, possible: np.ndarray) -> float | None:
    """The share in percent; None if the denominator is 0."""
    return float(100 * added.sum() / possible.sum()) if possible.sum() else None


def resampled(added: np.ndarray, possible: np.ndarray, name: str) -> np.ndarray:
    """The share in percent in each of `RESAMPLES` bootstrap resamples of the episodes, NaN where it is undefined.

    The variance of resamples of n episodes with a denominator is (n - 1) / n of that of samples: a fifth less for five
    episodes. Deviations from the share are therefore multiplied by sqrt(n / (n - 1)), also beyond 0 and 100 %. Fewer
    than two such episodes do not show any variance: every value is NaN.

    Few distinct pairs of values occur, so their counts are drawn from a multinomial, which equals drawing episodes.
    `name` seeds the draws.
    """
    share, counted = percent(added, possible), np.count_nonzero(possible)
    if share is None or counted < 2:
        return np.full(RESAMPLES, np.nan)
    kinds, counts = np.unique(added + 1j * possible, return_counts=True)
    drawn = _generator(name).multinomial(len(added), counts / len(added), RESAMPLES)
    with np.errstate(invalid="ignore"):
        percents = 100 * (drawn @ kinds.real) / (drawn @ kinds.imag)
    return share + math.sqrt(counted / (counted - 1)) * (percents - share)


def resampled_difference(before: Quotient, after: Quotient, name: str) -> np.ndarray:
    """`after` less `before` in points, both resampled together as in `resampled`."""
    (old, possible), (new, now_possible) = before, after
    if np.array_equal(possible, now_possible):
        return resampled(new - old, possible, name)
    first, second = percent(*before), percent(*after)
    counted = min(np.count_nonzero(possible), np.count_nonzero(now_possible))
    if first is None or second is None or counted < 2:
        return np.full(RESAMPLES, np.nan)
    rows, counts = np.unique(np.stack([old, possible, new, now_possible]), axis=1, return_counts=True)
    drawn = _generator(name).multinomial(len(old), counts / len(old), RESAMPLES) @ rows.T
    with np.errstate(invalid="ignore"):
        points = 100 * (drawn[:, 2] / drawn[:, 3] - drawn[:, 0] / drawn[:, 1])
    return second - first + math.sqrt(counted / (counted - 1)) * (points - (second - first))


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng([0, *name.encode()])


def interval(percents: np.ndarray, lowest: float = -100.0) -> list[float] | None:
    """The 2.5 % and 97.5 % quantiles of the defined values, from `lowest` (0 of a share, -100 of a difference) to 100.

    None without any, and where all are equal up to rounding: episodes that do not differ, or a single one, do not show
    how far the share may be off."""
    known = percents[~np.isnan(percents)]
    if not len(known) or np.ptp(known) < _SAME:
        return None
    return [float(edge) for edge in np.clip(np.percentile(known, [2.5, 97.5]), lowest, 100.0)]


def interval_of_share(share: str, quotient: Quotient, drawn: np.ndarray) -> list[float] | None:
    """Wilson's of a proportion of episodes; of another share that of its values in the resamples, `drawn`."""
    if share in SHARES_OF_EPISODES:
        return wilson(int(quotient[0].sum()), int(quotient[1].sum()))
    return interval(drawn, lowest=0.0)


def interval_of_mean(parts: Sequence[tuple[float | None, list[float] | None]]) -> list[float] | None:
    """The 95 % interval of the mean of independent proportions in percent, from the interval of each (Zou and Donner
    2008); None if one that is defined has no interval. Of a single proportion it is that one's."""
    known = [(value, edges) for value, edges in parts if value is not None]
    if not known or any(edges is None for _, edges in known):
        return None
    values = np.array([value for value, _ in known])
    low, high = np.array([edges for _, edges in known]).T
    below, above = (float(np.sqrt((distance**2).sum())) / len(known) for distance in (values - low, high - values))
    return [float(values.mean()) - below, float(values.mean()) + above]


def mean_of(values: list[float | None]) -> float | None:
    """The mean of the values that are not None; None without any."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def mean_resampled(parts: Sequence[tuple[float | None, np.ndarray]]) -> np.ndarray:
    """The mean over the parts in each resample, (RESAMPLES,); NaN where a part is undefined. `parts`: the share of each
    and its values in the resamples.

    A part whose share is None is left out, as `mean_of` does. A resample that happens to draw no such step of one part
    does not count: the mean over the other parts is another measure. One part of a single episode makes every value
    NaN, because the variance of the mean is then unknown.
    """
    drawn = [draws for share, draws in parts if share is not None]
    return np.mean(drawn, axis=0) if drawn else np.full(RESAMPLES, np.nan)


def wilson(successes: float, trials: float) -> list[float] | None:
    """The 95 % interval of a binomial proportion in percent (Wilson 1927); None without trials."""
    if not trials:
        return None
    share, weight = successes / trials, _QUANTILE**2 / trials
    centre = share + weight / 2
    half = _QUANTILE * math.sqrt(share * (1 - share) / trials + weight / trials / 4)
    low = (centre - half) / (1 + weight) if successes else 0.0
    high = (centre + half) / (1 + weight) if successes < trials else 1.0
    return [100 * low, 100 * high]


def paired_proportions(gains: int, losses: int, trials: int) -> list[float] | None:
    """The 95 % interval of the difference of two paired proportions in points (Bonett and Price 2012): `gains` pairs
    have the second alone, `losses` the first alone. It has a width where no pair differs. None without trials."""
    if not trials:
        return None
    gained, lost = (gains + 1) / (trials + 2), (losses + 1) / (trials + 2)
    difference = gained - lost
    half = _QUANTILE * math.sqrt((gained + lost - difference**2) / (trials + 2))
    return [100 * max(difference - half, -1.0), 100 * min(difference + half, 1.0)]
