"""Dialects: the official AITW matcher, our strict rule, and every published variant that differs.

No two repositories of this field compute the same score. Each known variant is a dialect with a name and a source, so
that a score is compared only with published numbers of the same rule. In all of them a tap never matches a swipe, other
actions match their own kind, and an answer that is not an action matches nothing.

The dialects of AndroidControl and GUI-Odyssey (`controls`) explain published numbers: they reproduce slips that shift
a number as a whole, name them (`slips`), and `score` prints what each decides. Crashes and single odd strings are not
reproduced.

Errors of the other published scorers are *not* reproduced: scoring the previous sample after a parse failure (Auto-UI),
dropping failed samples from the denominator (SeeClick), counting every Enter and every end of a task as right
(MM-Navigator), comparing clicks with (0, 0) (CoAT, `aitz/rules.py`), accepting an empty text for any (CoAT, Auto-UI,
AgentCPM-GUI on AitZ).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Never

import numpy as np

from vlm_agent.episodes import KINDS_WITH_TEXT, KINDS_WITH_TOUCH, Action, ActionKind, Episode, Step, is_same_text
from vlm_agent.errors import UserError
from vlm_agent.evaluation.predictions import Prediction, predictions_for
from vlm_agent.evaluation.scoring import aitw_matcher
from vlm_agent.evaluation.scoring.aitz.rules import boxes_match, texts_match
from vlm_agent.evaluation.scoring.controls import android_control, gui_odyssey
from vlm_agent.evaluation.scoring.controls.matching import Matching
from vlm_agent.evaluation.scoring.d_pot import box_matches_tap, touches_the_element
from vlm_agent.evaluation.scoring.steps import Rule, Ruling, StepTable, all_match, by_text
from vlm_agent.evaluation.scoring.strict import same_element
from vlm_agent.geometry import AITZ_VERTICAL_SHARE, boxes_at, directions


@dataclass(frozen=True)
class Dialect:
    """`rule` describes in one line which answers are right, `source` names who publishes numbers under it."""

    rule: str
    source: str
    taps: Rule
    swipes: Rule
    texts: Rule
    slips: ClassVar[Mapping[str, Never]] = {}
    either_end: bool = False
    """Whether a declaration that the task is complete matches one that it is impossible."""
    judges_new_kinds: bool = False
    """Whether long presses are judged like taps, and answers and names of apps like typed text. Otherwise they match if
    their kinds are equal, as AITW's code compares every type that it does not know."""

    def judge(self, table: StepTable) -> Ruling:
        """The verdict on each step. Every step counts."""
        counted = np.ones(len(table), bool)
        return Ruling(self._right(table), table.gold.name == table.predicted.name, counted, counted)

    def without(self, slip: str) -> "Dialect":
        raise KeyError(slip)

    def _right(self, table: StepTable) -> np.ndarray:
        gold, predicted = table.gold, table.predicted
        right = (gold.kind == predicted.kind) & (gold.kind != ActionKind.DUAL_POINT)
        if self.either_end:
            right |= _is_end(gold.kind) & _is_end(predicted.kind)
        judged = [
            (self.taps, gold.is_tap & predicted.is_tap),
            (self.swipes, gold.is_swipe & predicted.is_swipe),
            (self.texts, right & (gold.kind == ActionKind.TYPE)),
        ]
        if self.judges_new_kinds:
            judged.append((self.taps, right & np.isin(gold.kind, KINDS_WITH_TOUCH)))
            judged.append((self.texts, right & np.isin(gold.kind, KINDS_WITH_TEXT)))
        for rule, both in judged:
            rows = np.flatnonzero(both)
            right[rows] = rule(table, rows)
        return right


Scorer = Dialect | Matching


def is_officially_right(action: Action, step: Step) -> bool:
    """Whether `action` matches the recorded action of `step` by the dialect `official`."""
    episode = Episode("", "", "", (step,))
    return bool(verdicts(predictions_for(episode, [""], [action]), ["official"])["official"][0])


def find_dialect(name: str) -> Scorer:
    """The dialect of this name. Raises UserError listing all of them if it is unknown."""
    if name not in DIALECTS:
        raise UserError(f"dialect {name!r} is unknown; choose one of {', '.join(DIALECTS)}")
    return DIALECTS[name]


def describe_scorers(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Rules and sources, as printed under tables: {name: {"rule": …, "source": …}}."""
    dialects = {name: find_dialect(name) for name in names}
    return {name: {"rule": dialect.rule, "source": dialect.source} for name, dialect in dialects.items()}


def _is_end(kind: np.ndarray) -> np.ndarray:
    return (kind == ActionKind.STATUS_TASK_COMPLETE) | (kind == ActionKind.STATUS_TASK_IMPOSSIBLE)


def _near_or_in_one_box(table: StepTable, rows: np.ndarray, growth: float) -> np.ndarray:
    gold, predicted = (points.astype(np.float32) for points in _touches(table, rows))
    right = aitw_matcher.within(gold, predicted, aitw_matcher.MATCH_DISTANCE)
    undecided = np.flatnonzero(~right & (table.boxes.counts[rows] > 0))
    fullest = int(table.boxes.counts[rows].max(initial=0))
    for chunk in aitw_matcher.chunks(undecided, fullest):
        taps = (gold.take(chunk, axis=0), predicted.take(chunk, axis=0))
        right[chunk] = aitw_matcher.share_a_box(*taps, *table.boxes.padded(rows[chunk]), growth)
    return right


def _touches(table: StepTable, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return table.gold.touch[rows], table.predicted.touch[rows]


def _same_axis(table: StepTable, rows: np.ndarray) -> np.ndarray:
    gold, predicted = table.gold, table.predicted
    points = (gold.touch, gold.lift, predicted.touch, predicted.lift)
    return aitw_matcher.same_axis(*(array.take(rows, axis=0).astype(np.float32) for array in points))


def _same_direction(table: StepTable, rows: np.ndarray, vertical_share: float = 1.0) -> np.ndarray:
    gold, predicted = (
        directions(actions.touch[rows], actions.lift[rows], vertical_share) for actions in (table.gold, table.predicted)
    )
    return gold == predicted


def _same_element(table: StepTable, rows: np.ndarray) -> np.ndarray:
    gold, predicted = _touches(table, rows)
    right = same_element(gold, predicted, *table.boxes.listed(rows))
    boxes, place = table.targets.listed(rows)
    inside = (boxes[:, :2] <= predicted[place]) & (predicted[place] <= boxes[:, :2] + boxes[:, 2:])
    right[place[inside.all(axis=1)]] = True
    return right


def _five_points(table: StepTable, rows: np.ndarray) -> np.ndarray:
    return touches_the_element(*_touches(table, rows), *table.boxes.listed(rows))


def _any_point_of_the_box(table: StepTable, rows: np.ndarray) -> np.ndarray:
    """D-PoT's published rule for clicks. A tap without a predicted box stands for the smallest element under it, or for
    itself."""
    return box_matches_tap(table.gold.touch[rows], _answered_boxes(table, rows), *table.boxes.listed(rows))


def _answered_boxes(table: StepTable, rows: np.ndarray) -> np.ndarray:
    """float64 (R, 4): the box that each answer names; without one, the smallest element under its tap, or a box without
    an extent."""
    predicted = table.predicted.touch[rows]
    elements, place = table.boxes.listed(rows)
    found = boxes_at(predicted, elements, place)
    box = np.column_stack([predicted, np.zeros_like(predicted)])
    box[found >= 0] = elements[found[found >= 0]]
    named = table.predicted_box[rows]
    return np.where(np.isnan(named).any(axis=1, keepdims=True), box, named)


def _contain(gold: str, predicted: str) -> bool:
    """Whether one text contains the other, in lower case and without white space around the predicted one. An empty
    text, also of white space alone, matches only an empty one."""
    gold, predicted = gold.lower(), predicted.lower().strip()
    if not gold.strip() or not predicted:
        return gold.strip() == predicted
    return gold in predicted or predicted in gold


def _box_meets_point(table: StepTable, rows: np.ndarray) -> np.ndarray:
    """CoAT's rule for clicks. A tap without a predicted box stands for the smallest element under it, or for itself."""
    elements, place = table.boxes.listed(rows)
    return boxes_match(_corners(_answered_boxes(table, rows)), table.gold.touch[rows], _corners(elements), place)


def _corners(boxes: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]])


_OFFICIAL_TAPS = partial(_near_or_in_one_box, growth=aitw_matcher.BOX_GROWTH)
_COAT_SWIPES = partial(_same_direction, vertical_share=AITZ_VERTICAL_SHARE)
_COAT_TEXTS = by_text(texts_match)

AITW = {
    "official": Dialect(
        rule="taps within 0.14 or in one box 2.4 times as large, swipes by axis, typed text not compared",
        source="Rawles et al. 2023, google-research/android_in_the_wild action_matching.py",
        taps=_OFFICIAL_TAPS,
        swipes=_same_axis,
        texts=all_match,
    ),
    "strict": Dialect(
        rule="taps in the same smallest element (outside every element within 0.04) or in the data set's gold box, "
        "swipes by direction, text equal",
        source="ours",
        taps=_same_element,
        swipes=_same_direction,
        texts=by_text(is_same_text),
        judges_new_kinds=True,
    ),
    "official_text": Dialect(
        rule="official, and one typed text must contain the other, in lower case",
        source="Auto-UI (Zhang and Zhang 2023), cooelf/Auto-GUI main.py text_acc; SeeClick compares typed text the "
        "same way",
        taps=_OFFICIAL_TAPS,
        swipes=_same_axis,
        texts=by_text(_contain),
    ),
    "official_direction": Dialect(
        rule="official, and swipes must go in the same direction",
        source="MM-Navigator (Yan et al. 2023), zzxslp/MM-Navigator eval.py",
        taps=_OFFICIAL_TAPS,
        swipes=lambda table, rows: _same_axis(table, rows) & _same_direction(table, rows),
        texts=all_match,
    ),
    "official_factor": Dialect(
        rule="official, but boxes 1.4 times as large: 1.4 as the factor, not as the increase",
        source="OpenBMB/AgentCPM-GUI eval/utils/evaluator.py reads it this way, with 1.2",
        taps=partial(_near_or_in_one_box, growth=0.4),
        swipes=_same_axis,
        texts=all_match,
    ),
    "five_points": Dialect(
        rule="the tapped element holds the gold tap or has a corner or its centre within 0.14; swipes by direction",
        source="D-PoT (Zhang et al. 2024), appendix A.3; MM-Navigator eval.py with two corners and the centre",
        taps=_five_points,
        swipes=_same_direction,
        texts=all_match,
    ),
    "d_pot": Dialect(
        rule="the chosen element holds the gold tap, or a corner of it or its centre matches the gold tap by the "
        "official rule; an answer without an element counts as the smallest one under its tap; swipes by direction",
        source="D-PoT (Zhang et al. 2024), sqzhang-lazy/D-PoT eval.py; the paper's words are five_points",
        taps=_any_point_of_the_box,
        swipes=_same_direction,
        texts=all_match,
    ),
    "agentcpm": Dialect(
        rule="taps within 0.14 or in one box 1.2 times as large, swipes by direction, one text in the other, "
        "complete and impossible count as equal",
        source="AgentCPM-GUI on AitZ, OpenBMB/AgentCPM-GUI eval/utils/evaluator.py, after Qwen2.5-VL",
        taps=partial(_near_or_in_one_box, growth=0.2),
        swipes=_same_direction,
        texts=by_text(lambda gold, predicted: _contain(gold.strip(), predicted)),
        either_end=True,
    ),
    "coat_point": Dialect(
        rule="taps within 0.14 or in one element, swipes by direction (vertical from |dy| = 0.9 |dx|), one text in the "
        "other or a Levenshtein ratio above 0.8, complete and impossible count as equal",
        source="CoAT (Zhang et al. 2024) for agents that predict points; IMNearth/CoAT coat/evaluate.py but for clicks",
        taps=partial(_near_or_in_one_box, growth=0.0),
        swipes=_COAT_SWIPES,
        texts=_COAT_TEXTS,
        either_end=True,
    ),
    "coat_box": Dialect(
        rule="the predicted box, 1.2 times as large, holds the gold tap, or overlaps by IoU > 0.5 with an element, 1.2 "
        "times as large, that does; an answer without a box counts as the smallest element under its tap; the rest as "
        "coat_point",
        source="CoAT (Zhang et al. 2024), IMNearth/CoAT coat/evaluate.py, with the gold tap in place of (0, 0)",
        taps=_box_meets_point,
        swipes=_COAT_SWIPES,
        texts=_COAT_TEXTS,
        either_end=True,
    ),
}
"""Scorers of AITW and AitZ by name."""

DIALECTS: dict[str, Scorer] = {**AITW, **android_control.DIALECTS, **gui_odyssey.DIALECTS}
"""Scorers by the name that `--dialect` and benchmark files use."""

SCORERS = ("official", "strict")
"""The dialects of every result."""


def verdicts(steps: StepTable | Sequence[Prediction], scorers: Sequence[str] = SCORERS) -> dict[str, np.ndarray]:
    """Whether each prediction is right, bool (N,), under each of `scorers`; an answer that is not an action is wrong.

    Raises UserError listing the dialects if one of `scorers` is unknown.
    """
    table = steps if isinstance(steps, StepTable) else StepTable.of(steps)
    return {scorer: find_dialect(scorer).judge(table).right for scorer in scorers}
