"""Baselines without a model: the most frequent action, and the blind ceiling of a data set.

Both score a policy that never looks at the screen. Every agent's score should be compared with them. For a language
that chooses elements by number, a third one is the score of the demonstrated actions as the language writes them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from rich.console import Console

from vlm_agent.action_languages import ActionLanguage, default_language
from vlm_agent.action_languages.language import SWIPES
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.statistics.summary import read_columns
from vlm_agent.episodes import ACTION_NAMES, KINDS_WITH_TEXT, TARGET, Action, ActionKind, Screen
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.predictions import Prediction
from vlm_agent.evaluation.scoring.aitw_matcher import actions_match
from vlm_agent.evaluation.scoring.dialects import SCORERS, verdicts
from vlm_agent.evaluation.scoring.metrics import overall_weights, score
from vlm_agent.evaluation.scoring.strict import taps_match_strictly
from vlm_agent.geometry import box_at

MOST_FREQUENT, CEILING = "most_frequent_action", "blind_ceiling"
NEAREST_ELEMENT = "nearest_element"
"""The gold action as the agent's language writes it, if that numbers elements: always the nearest element."""

_LANGUAGE = default_language()
_GRID = 24  # candidate taps along each axis, in addition to the gold taps
_GOLD_CANDIDATES = 1000
_CONSTANTS = {
    "swipe": [Action.swipe(*points) for points in SWIPES.values()],
    **{kind.short_name: [Action(kind)] for kind in ActionKind if not (kind.facts.points or kind.facts.has_text)},
}


def without_model(gold: Sequence[Prediction], benchmark: Benchmark, console: Console) -> dict[str, dict]:
    """The scores of the baselines, by run: one policy chosen on the train split, another one on the scored data."""
    scores: dict[str, dict] = {}
    groups = benchmark.episode_groups()
    training = ShardDataset(benchmark.shards, split="train")
    if len(training):
        most_frequent = most_frequent_action(read_columns(training).actions())
        answers = constant_predictions(gold, most_frequent)
        scores[MOST_FREQUENT] = score(answers, groups, scorers=benchmark.scorers)
    else:
        console.print(f"{benchmark.shards} has no train split, so the baseline {MOST_FREQUENT} is skipped")
    return scores | {CEILING: blind_ceiling(gold, groups)}


def reach(gold: Sequence[Prediction], language: ActionLanguage, benchmark: Benchmark) -> dict[str, dict]:
    """The score of the gold actions in a language that numbers elements, with the taps that it cannot write; empty for
    another language. `gold` has the elements of the data set."""
    if not language.needs_elements:
        return {}
    scores = score(written_in(language, gold), benchmark.episode_groups(), scorers=benchmark.scorers)
    return {NEAREST_ELEMENT: scores | {"about": {"gold_taps": taps_on_no_element(gold)}}}


def most_frequent_action(demonstrated: Iterable[Action]) -> Action:
    """The most frequent of the demonstrated actions, with gestures counted by bins of 1/100.

    Ties are broken alphabetically. Raises DatasetError without any.
    """
    counts = Counter(map(_LANGUAGE.encode, demonstrated))
    if not counts:
        raise DatasetError("the training episodes have no steps, so they have no most frequent action")
    text = min(counts, key=lambda text: (-counts[text], text))
    action = _LANGUAGE.decode(text)
    if action is None:
        raise AssertionError(f"{text!r} was encoded by the same language")
    return action


def constant_predictions(gold: Iterable[Prediction], action: Action) -> list[Prediction]:
    """The same steps, each answered with `action`."""
    return [replace(row, text=_LANGUAGE.encode(action), predicted=action, box=None) for row in gold]


def blind_ceiling(gold: Sequence[Prediction], groups: Mapping[str, Collection[str]] | None = None) -> dict:
    """The score of the best screen-blind policy that knows each expert step's type, chosen with hindsight on this data.

    For each of `ACTION_NAMES` the policy has one constant action: the one that adds most to the overall partial match.
    Every step adds a fixed weight, so choosing type by type is exact. The official and the strict score have separate
    constants. The result has the structure of `metrics.score`; each table uses its own constants, `confusion` and
    `by_step` the official ones. `constants` holds them as text, rounded to bins.

    Taps are searched among the gold taps and a 24 × 24 grid, texts among the gold texts, swipes among four directions.
    Above 1,000 different gold taps a seeded sample of 1,000 is searched, and the ceiling is a lower bound. The
    predictions in `gold` are ignored.
    """
    weights = overall_weights(gold)
    chosen = {scorer: _best_constants(gold, weights, scorer) for scorer in SCORERS}
    scores = {scorer: score(_answer(gold, constants), groups) for scorer, constants in chosen.items()}
    return scores["official"] | {
        "strict": scores["strict"]["strict"],
        "constants": {
            scorer: {kind: _LANGUAGE.encode(action) for kind, action in constants.items()}
            for scorer, constants in chosen.items()
        },
    }


def written_in(language: ActionLanguage, gold: Iterable[Prediction]) -> list[Prediction]:
    """The same steps, each answered with the gold action in `language`, which may write another action: one that
    numbers elements writes a tap on no element as the nearest element."""
    return [_written(language, row) for row in gold]


def _written(language: ActionLanguage, row: Prediction) -> Prediction:
    screen = Screen(None, row.shown, size=row.size)
    text = language.encode(row.gold, screen)
    return replace(row, text=text, predicted=language.decode(text, screen), box=language.predicted_box(text, screen))


def taps_on_no_element(gold: Iterable[Prediction]) -> dict[str, int]:
    """`taps`: gold taps and long presses; `on_no_element`: those whose point no box of the screen contains."""
    touches = [row for row in gold if row.gold.is_touch]
    beside = sum(box_at([one.box for one in row.shown], row.gold.touch_yx) is None for row in touches)
    return {"taps": len(touches), "on_no_element": beside}


def _answer(gold: Sequence[Prediction], constants: dict[str, Action]) -> list[Prediction]:
    return [
        replace(row, text=_LANGUAGE.encode(constants[row.gold.name]), predicted=constants[row.gold.name], box=None)
        for row in gold
    ]


def _best_constants(gold: Sequence[Prediction], weights: np.ndarray, scorer: str) -> dict[str, Action]:
    best = {}
    for kind in ACTION_NAMES:
        where = [index for index, row in enumerate(gold) if row.gold.name == kind]
        if not where:
            continue
        rows, row_weights = [gold[index] for index in where], weights[where]
        if kind == "tap":
            best[kind] = _best_tap(rows, row_weights, _TAP_MATCHERS[scorer])
        elif kind == "long_press":
            best[kind] = Action.long_press(*_best_tap(rows, row_weights, _strict_taps).touch_yx)
        elif rows[0].gold.kind in KINDS_WITH_TEXT:
            best[kind] = _most_frequent_text(rows, row_weights)
        else:
            best[kind] = max(_CONSTANTS[kind], key=lambda action: _gain(rows, row_weights, action, scorer))
    return best


def _gain(rows: list[Prediction], weights: np.ndarray, action: Action, scorer: str) -> float:
    return float(weights @ verdicts(constant_predictions(rows, action))[scorer])


def _most_frequent_text(rows: list[Prediction], weights: np.ndarray) -> Action:
    """The text with the greatest weight: optimal for the strict score; the official one accepts any text."""
    totals: dict[str, float] = {}
    for row, weight in zip(rows, weights, strict=True):
        totals[row.gold.text] = totals.get(row.gold.text, 0.0) + weight
    return Action(rows[0].gold.kind, text=max(totals, key=totals.__getitem__))


def _best_tap(rows: list[Prediction], weights: np.ndarray, matcher: Callable) -> Action:
    candidates = _candidate_taps(rows)
    gain = np.zeros(len(candidates))
    for row, weight in zip(rows, weights, strict=True):
        gain += weight * matcher(row, candidates)
    return Action.tap(*candidates[gain.argmax()])


def _candidate_taps(rows: list[Prediction]) -> np.ndarray:
    taps = np.unique([row.gold.touch_yx for row in rows], axis=0)
    if len(taps) > _GOLD_CANDIDATES:
        taps = np.random.default_rng(0).choice(taps, _GOLD_CANDIDATES, replace=False)
    centres = (np.arange(_GRID) + 0.5) / _GRID
    return np.vstack([taps, np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=-1).reshape(-1, 2)])


def _official_taps(row: Prediction, taps: np.ndarray) -> np.ndarray:
    n, boxes = len(taps), _boxes(row)
    gold, kinds = np.broadcast_to(np.array(row.gold.touch_yx), (n, 2)), np.full(n, int(ActionKind.DUAL_POINT))
    screens = np.broadcast_to(boxes, (n, *boxes.shape))
    return actions_match(gold, gold, kinds, taps, taps, kinds, screens, np.full(n, len(boxes)))


def _strict_taps(row: Prediction, taps: np.ndarray) -> np.ndarray:
    right = taps_match_strictly(np.array(row.gold.touch_yx), taps, _boxes(row))
    for box in (element.box for element in row.elements if element.type == TARGET):
        right |= ((taps >= box[:2]) & (taps <= np.add(box[:2], box[2:]))).all(axis=1)
    return right


def _boxes(row: Prediction) -> np.ndarray:
    return np.array([element.box for element in row.shown], np.float64).reshape(-1, 4)


_TAP_MATCHERS = {"official": _official_taps, "strict": _strict_taps}
