"""Baselines without a model: the most frequent action, and the blind ceiling of a data set.

Both score a policy that never looks at the screen. Every agent's score should be compared with them. For a language
that chooses elements by number, a third one is the score of the demonstrated actions as the language writes them.

Steps are read in tables, once for each answer that is scored: those of AITW's test split do not fit in memory as
objects.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console

from vlm_agent.action_languages import ActionLanguage, default_language
from vlm_agent.action_languages.language import SWIPES
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.statistics.summary import read_columns
from vlm_agent.episodes import ACTION_NAMES, Action, ActionKind, Screen
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.predictions import Prediction, prediction_batches
from vlm_agent.evaluation.scoring.aitw_matcher import actions_match, share_a_box
from vlm_agent.evaluation.scoring.dialects import SCORERS
from vlm_agent.evaluation.scoring.judged import JudgedSteps, judge_steps
from vlm_agent.evaluation.scoring.metrics import overall_weights, score
from vlm_agent.evaluation.scoring.steps import Boxes, Steps, StepTable, step_tables
from vlm_agent.evaluation.scoring.strict import taps_match_strictly
from vlm_agent.geometry import boxes_at

MOST_FREQUENT, CEILING = "most_frequent_action", "blind_ceiling"
NEAREST_ELEMENT = "nearest_element"
"""The gold action as the agent's language writes it, if that numbers elements: always the nearest element."""

_LANGUAGE = default_language()
_GRID = 24  # candidate taps along each axis, in addition to the gold taps
_GOLD_CANDIDATES = 1000


def without_model(gold: Path, benchmark: Benchmark, console: Console) -> dict[str, dict]:
    """The scores of the baselines on the steps of a predictions file, by run: one policy chosen on the train split,
    another one on the scored data."""
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


def reach(gold: Path, language: ActionLanguage, benchmark: Benchmark) -> dict[str, dict]:
    """The score of the gold actions in a language that numbers elements, with the taps that it cannot write; empty for
    another language. `gold` is a predictions file with the elements of the data set."""
    if not language.needs_elements:
        return {}
    written = (StepTable.of(written_in(language, rows)) for rows in prediction_batches(gold))
    scores = score(written, benchmark.episode_groups(), scorers=benchmark.scorers)
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


def constant_predictions(gold: Steps, action: Action) -> Iterator[StepTable]:
    """The same steps, each answered with `action`."""
    return (table.answered(dict.fromkeys(ACTION_NAMES, action)) for table in step_tables(gold))


def blind_ceiling(gold: Path | Sequence[Prediction], groups: Mapping[str, Collection[str]] | None = None) -> dict:
    """The score of the best screen-blind policy that knows each expert step's type, chosen with hindsight on this data.

    For each of `ACTION_NAMES` the policy has one constant action: the one that adds most to the overall partial match.
    Every step adds a fixed weight, so choosing type by type is exact. The official and the strict score have separate
    constants. The result has the structure of `metrics.score`; each table uses its own constants, `confusion` and
    `by_step` the official ones. `constants` holds them as text, rounded to bins.

    Taps are searched among the gold taps and a 24 × 24 grid, texts among the gold texts, swipes among four directions.
    Above 1,000 different gold taps a seeded sample of 1,000 is searched, and the ceiling is a lower bound. The
    predictions in `gold` are ignored.
    """
    chosen = _best_constants(gold)
    scores = {
        scorer: score((table.answered(constants) for table in step_tables(gold)), groups)
        for scorer, constants in chosen.items()
    }
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


def taps_on_no_element(gold: Steps) -> dict[str, int]:
    """`taps`: gold taps and long presses; `on_no_element`: those whose point no box of the screen contains."""
    found = [
        boxes_at(table.gold.touch[rows], *table.boxes.listed(rows))
        for table in step_tables(gold)
        for rows in [np.flatnonzero(table.gold.is_touch)]
    ]
    return {"taps": sum(map(len, found)), "on_no_element": int(sum((of < 0).sum() for of in found))}


def _best_constants(gold: Path | Sequence[Prediction]) -> dict[str, dict[str, Action]]:
    """By scorer, the best action for each of `ACTION_NAMES` that occurs."""
    steps = judge_steps(gold, ())
    weights = overall_weights(steps)
    best: dict[str, dict[str, Action]] = {scorer: {} for scorer in SCORERS}
    for name in ACTION_NAMES:
        rows = np.flatnonzero(steps.gold.name == ACTION_NAMES.index(name))
        if not len(rows):
            continue
        kind = ActionKind(steps.gold.kind[rows[0]])
        if name == "swipe":
            of_scorers = _best_swipes(gold, rows, weights[rows])
        elif kind.facts.points:
            of_scorers = _best_touches(gold, name, steps, weights)
        elif kind.facts.has_text:
            of_scorers = dict.fromkeys(SCORERS, _most_frequent_text(kind, steps.gold.text.take(rows), weights[rows]))
        else:
            of_scorers = dict.fromkeys(SCORERS, Action(kind))
        for scorer, action in of_scorers.items():
            best[scorer][name] = action
    return best


def _best_swipes(gold: Steps, rows: np.ndarray, weights: np.ndarray) -> dict[str, Action]:
    swipes = [Action.swipe(*points) for points in SWIPES.values()]
    right = [judge_steps(constant_predictions(gold, swipe)).right for swipe in swipes]
    gains = {scorer: [weights @ of_swipe[scorer][rows] for of_swipe in right] for scorer in SCORERS}
    return {scorer: swipes[int(np.argmax(of_scorer))] for scorer, of_scorer in gains.items()}


def _most_frequent_text(kind: ActionKind, texts: pa.Array, weights: np.ndarray) -> Action:
    """The text with the greatest weight: optimal for the strict score; the official one accepts any text."""
    totals: dict[str, float] = {}
    for text, weight in zip(texts.to_pylist(), weights, strict=True):
        totals[text] = totals.get(text, 0.0) + weight
    return Action(kind, text=max(totals, key=totals.__getitem__))


def _best_touches(gold: Steps, name: str, steps: JudgedSteps, weights: np.ndarray) -> dict[str, Action]:
    """The best tap, or long press, which the official score accepts anywhere."""
    index = ACTION_NAMES.index(name)
    candidates = _candidate_taps(steps.gold.touch[steps.gold.name == index])
    gains, first = {scorer: np.zeros(len(candidates)) for scorer in SCORERS}, 0
    for table in step_tables(gold):
        for row in np.flatnonzero(table.gold.name == index).tolist():
            touch, boxes, targets = table.gold.touch[row], _of_screen(table.boxes, row), _of_screen(table.targets, row)
            strict = _strict_taps(touch, candidates, boxes, targets)
            official = _official_taps(touch, candidates, boxes) if name == "tap" else strict
            gains["official"] += weights[first + row] * official
            gains["strict"] += weights[first + row] * strict
        first += len(table)
    make = Action.tap if name == "tap" else Action.long_press
    return {scorer: make(*candidates[of_scorer.argmax()]) for scorer, of_scorer in gains.items()}


def _of_screen(boxes: Boxes, row: int) -> np.ndarray:
    return boxes.values[boxes.starts[row] :][: boxes.counts[row]]


def _candidate_taps(gold: np.ndarray) -> np.ndarray:
    taps = np.unique(gold, axis=0)
    if len(taps) > _GOLD_CANDIDATES:
        taps = np.random.default_rng(0).choice(taps, _GOLD_CANDIDATES, replace=False)
    centres = (np.arange(_GRID) + 0.5) / _GRID
    return np.vstack([taps, np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=-1).reshape(-1, 2)])


def _official_taps(gold: np.ndarray, taps: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    n, kinds = len(taps), np.full(len(taps), int(ActionKind.DUAL_POINT))
    # Only the few boxes around the gold tap can contain it and another tap.
    touches = np.broadcast_to(gold.astype(np.float32), (len(boxes), 2))
    around = share_a_box(touches, touches, boxes[:, None].astype(np.float32), np.ones(len(boxes), int))
    touches, screens = np.broadcast_to(gold, (n, 2)), np.broadcast_to(boxes[around], (n, int(around.sum()), 4))
    return actions_match(touches, touches, kinds, taps, taps, kinds, screens, np.full(n, screens.shape[1]))


def _strict_taps(gold: np.ndarray, taps: np.ndarray, boxes: np.ndarray, targets: np.ndarray) -> np.ndarray:
    right = taps_match_strictly(gold, taps, boxes)
    for box in targets:
        right |= ((taps >= box[:2]) & (taps <= box[:2] + box[2:])).all(axis=1)
    return right
