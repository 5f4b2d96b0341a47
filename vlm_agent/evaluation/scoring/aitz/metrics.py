"""The table of AitZ (Zhang et al. 2024, tables 1 and 5): shares by kind of action, over steps and over episodes.

Every share but two is micro, over all steps of its kind; goal progress and success are means over episodes. Differences
from the published evaluator (IMNearth/CoAT, commit 9ab1a9f) and the paper:

- A kind without gold steps has no share; the published code divides by zero.
- A click and a scroll are two types, in the totals too. The paper's totals of type count them as one.
- The totals count the stops of every system. The paper's totals of zero-shot systems leave them out.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from vlm_agent.episodes import ACTION_NAMES, BUTTONS
from vlm_agent.evaluation.scoring.judged import JudgedSteps
from vlm_agent.evaluation.scoring.measures import Quotient, interval_of_share, percent, resampled, steps_to_first_error

AITZ_SCORERS = ("coat_point", "coat_box")
"""The dialects whose results have the table of AitZ."""

KINDS = ("scroll", "click", "type", "press", "stop")
OTHER = -1
"""The kind of an action that AitZ lacks, and of an answer that is not an action."""

MEASURES = (
    *("scroll", "click_type", "click", "type_type", "type", "press", "stop", "total_type", "total"),
    *("hit_rate", "goal_progress", "success"),
)
"""The columns of the table; those that the paper prints have the names of `report/published.yaml`."""

_KIND_OF_NAME = {
    "swipe": "scroll",
    "tap": "click",
    **dict.fromkeys(BUTTONS, "press"),
    **dict.fromkeys(("complete", "impossible"), "stop"),
}


def _code(name: str) -> int:
    kind = _KIND_OF_NAME.get(name, name)
    return KINDS.index(kind) if kind in KINDS else OTHER


_CODES = np.array([*map(_code, ACTION_NAMES), OTHER])
"""The index in `KINDS`, or `OTHER`, of each of `ACTION_NAMES` and, at the end, of an answer that is not an action."""


def aitz_rows(steps: JudgedSteps, scorers: Sequence[str]) -> dict[str, dict[str, dict]]:
    """{scorer: {measure: {"value": …, "interval": …, "of": …}}} for those of `scorers` that are in `AITZ_SCORERS`.

    `value` is in percent, `interval` its 95 % as in `metrics.score`; None if undefined. `of` is the denominator: the
    number of steps, or of episodes.
    """
    return {scorer: _row(aitz_quotients(steps, steps.right[scorer])) for scorer in scorers if scorer in AITZ_SCORERS}


def _row(quotients: Mapping[str, Quotient]) -> dict[str, dict]:
    return {
        measure: {
            "value": percent(*of),
            "interval": interval_of_share(measure, of, resampled(*of, f"aitz {measure}")),
            "of": int(of[1].sum()),
        }
        for measure in MEASURES
        for of in [quotients[measure]]
    }


def aitz_quotients(steps: JudgedSteps, right: np.ndarray) -> dict[str, Quotient]:
    """Numerator and denominator by episode of each of `MEASURES`, and of `scroll_type`, `press_type` and `stop_type`.

    `right` is bool (N,). `X_type`: answers of the kind X among the gold steps of that kind, `X`: right ones among them.
    `hit_rate`: answers that are an action of AitZ's five kinds. A gold step of another kind counts in totals only, and
    its type is right if the step is.
    """
    gold, predicted, count = _CODES[steps.gold.name], _CODES[steps.predicted], steps.count
    lengths, ones = steps.lengths.astype(np.float64), np.ones(len(steps.lengths))
    same_kind = right | ((gold == predicted) & (gold != OTHER))
    quotients = {}
    for code, kind in enumerate(KINDS):
        among = gold == code
        quotients[f"{kind}_type"] = (count(same_kind & among), count(among))
        quotients[kind] = (count(right & among), count(among))
    reached = steps_to_first_error(steps.lengths, steps.episode, steps.step, right, np.ones_like(right))
    return quotients | {
        "total_type": (count(same_kind), lengths),
        "total": (count(right), lengths),
        "hit_rate": (count(predicted != OTHER), lengths),
        "goal_progress": (reached / lengths, ones),
        "success": ((reached == lengths).astype(np.float64), ones),
    }
