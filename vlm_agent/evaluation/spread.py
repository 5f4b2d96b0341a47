"""One predictions file under many scorers: what each counts, what it gives, and what a blind policy gets from it.

The blind ceiling and the most frequent action are chosen with hindsight on the scored steps, since a predictions file
has no training split.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
import pyarrow as pa

from vlm_agent.action_languages.language import SWIPES
from vlm_agent.episodes import ACTION_NAMES, KINDS_WITH_TEXT, KINDS_WITH_TOUCH, NO_POINT, Action, ActionKind
from vlm_agent.evaluation.scoring.controls import android_control, gui_odyssey
from vlm_agent.evaluation.scoring.dialects import AITW, Scorer, find_dialect
from vlm_agent.evaluation.scoring.judged import numbered
from vlm_agent.evaluation.scoring.measures import interval, percent, resampled
from vlm_agent.evaluation.scoring.steps import Actions, Ruling, Steps, StepTable, action_columns, step_tables

_POLICIES = 8
"""Blind policies that are tried; each has one action for each kind of gold action."""

_GRID = 24
_RADII = (0.14, 0.04)
_POINTED = [ACTION_NAMES.index("tap"), ACTION_NAMES.index("long_press")]


@dataclass(frozen=True)
class _Policy:
    """One answer for each of `ACTION_NAMES`: points (K, 2) and texts."""

    touch: np.ndarray
    lift: np.ndarray
    texts: tuple[str, ...]

    def answers(self, table: StepTable) -> StepTable:
        """The same steps, each answered with this policy's action of the gold kind."""
        gold = table.gold
        texts = pa.array(self.texts, pa.string()).take(pa.array(gold.name))
        has_touch, has_lift = np.isin(gold.kind, KINDS_WITH_TOUCH), gold.kind == ActionKind.DUAL_POINT
        touch = np.where(has_touch[:, None], self.touch[gold.name], NO_POINT[0])
        lift = np.where(has_lift[:, None], self.lift[gold.name], NO_POINT[0])
        return _answered(table, Actions(gold.kind, touch, lift, texts))


def dialects_of(table: StepTable) -> tuple[str, ...]:
    """The scorers of the data set of these steps: GUI-Odyssey marks gold boxes, AndroidControl has windows or
    instructions of the steps; other steps are AITW's."""
    if len(table.targets.values):
        return ("strict", *gui_odyssey.DIALECTS)
    if len(table.node_index) > len(table.shown) or any(table.instruction.to_pylist()):
        return ("strict", *android_control.DIALECTS)
    return tuple(AITW)


def spread(source: Steps, scorers: Sequence[str] = (), grey: Steps | None = None) -> dict[str, dict]:
    """A row for each of `scorers`, by default `dialects_of`; shares are percentages.

    `steps` count and `left_out` do not. `step_success`: right among them, with an `interval` by bootstrap over
    episodes. `kind`: answers of the right kind. `grounding`: right among gold taps and long presses. `blind_ceiling`:
    the best of a few actions for each kind of gold action, a lower bound. `most_frequent`: the most frequent gold
    action as every answer. Both answer every step, also those that count only with an answer. `grey`: the step success
    of the run `grey`, None without it. `slips`: for each slip of the published code the `steps` that it decides and the
    step success `without` it.

    Raises UserError naming what the steps lack, and every error of `step_tables`.
    """
    tables, grey_tables = list(step_tables(source)), None if grey is None else list(step_tables(grey))
    names = tuple(scorers) or (dialects_of(tables[0]) if tables else tuple(AITW))
    dialects = {name: find_dialect(name) for name in names}
    _, episode = numbered(table.episode_id for table in tables)
    pointed = np.concatenate([np.isin(table.gold.name, _POINTED) for table in tables])
    kinds = np.concatenate([table.gold.name for table in tables])
    blind = [[policy.answers(table) for table in tables] for policy in _policies(tables)]
    actions = [action for table in tables for action in _actions(table)]
    rows = {}
    for name, dialect in dialects.items():
        ruling = _judge(dialect, tables)
        right, counted = ruling.right & ruling.counted, int(ruling.counted.sum())
        rulings = [_judge(dialect, answers) for answers in blind]
        best = [np.bincount(kinds[one.right & one.counted], minlength=len(ACTION_NAMES)) for one in rulings]
        possible = np.any([one.counted for one in (ruling, *rulings)], axis=0)
        rows[name] = {
            "steps": counted,
            "left_out": len(kinds) - counted,
            **_success(right, ruling.counted, episode),
            "kind": _share(ruling.same_kind & ruling.has_kind, ruling.has_kind),
            "grounding": _share(right & pointed, ruling.counted & pointed),
            "blind_ceiling": 100 * int(np.max(best, axis=0).sum()) / int(possible.sum()) if possible.any() else None,
            "most_frequent": _success_of(dialect, _constant(tables, list(compress(actions, possible)))),
            "grey": None if grey_tables is None else _success_of(dialect, grey_tables),
            "slips": _slips(dialect, tables, ruling),
        }
    return rows


def slips(source: Steps, scorers: Sequence[str]) -> dict[str, dict]:
    """`slips` of each row of `spread`, without its other figures."""
    tables = list(step_tables(source))
    dialects = {name: find_dialect(name) for name in scorers}
    return {name: _slips(dialect, tables, _judge(dialect, tables)) for name, dialect in dialects.items()}


def _judge(dialect: Scorer, tables: Iterable[StepTable]) -> Ruling:
    parts = [dialect.judge(table) for table in tables]
    names = ("right", "same_kind", "counted", "has_kind")
    return Ruling(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _success_of(dialect: Scorer, tables: Iterable[StepTable]) -> float | None:
    ruling = _judge(dialect, tables)
    return _share(ruling.right & ruling.counted, ruling.counted)


def _share(mask: np.ndarray, among: np.ndarray) -> float | None:
    return percent(np.asarray(mask.sum()), np.asarray(among.sum()))


def _success(right: np.ndarray, counted: np.ndarray, episode: np.ndarray) -> dict:
    added, possible = (np.bincount(episode, weights=mask).astype(np.float64) for mask in (right, counted))
    draws = resampled(added, possible, "step_success")
    return {"step_success": percent(added, possible), "interval": interval(draws, lowest=0.0)}


def _slips(dialect: Scorer, tables: Sequence[StepTable], ruling: Ruling) -> dict[str, dict]:
    return {slip: _slip(ruling, _judge(dialect.without(slip), tables)) for slip in dialect.slips}


def _slip(with_it: Ruling, without: Ruling) -> dict:
    decided = (with_it.right & with_it.counted) != (without.right & without.counted)
    decided |= with_it.counted != without.counted
    return {"steps": int(decided.sum()), "without": _share(without.right & without.counted, without.counted)}


def _answered(table: StepTable, answers: Actions) -> StepTable:
    return replace(table, predicted=answers, predicted_box=np.full_like(table.predicted_box, np.nan))


def _policies(tables: Sequence[StepTable]) -> list[_Policy]:
    """Taps where most gold taps lie near, four swipes, and the most frequent texts and letters."""
    taps = np.concatenate([table.gold.touch[np.isin(table.gold.name, _POINTED)] for table in tables])
    points = _dense_points(taps)
    texts = {kind: _texts(tables, kind) for kind in KINDS_WITH_TEXT}
    policies = []
    for number in range(_POLICIES):
        touch = np.tile(points[number], (len(ACTION_NAMES), 1))
        lift = touch.copy()
        stroke = [*SWIPES.values()][number % len(SWIPES)]
        swipe = ACTION_NAMES.index("swipe")
        touch[swipe], lift[swipe] = stroke
        answers = [""] * len(ACTION_NAMES)
        for kind, found in texts.items():
            answers[ACTION_NAMES.index(kind.short_name)] = found[number % len(found)]
        policies.append(_Policy(touch, lift, tuple(answers)))
    return policies


def _dense_points(taps: np.ndarray) -> list[np.ndarray]:
    """Points of a grid that cover the most taps within each radius, one after the other."""
    centres = (np.arange(_GRID) + 0.5) / _GRID
    grid = np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=-1).reshape(-1, 2)
    points = []
    for radius in _RADII:
        near = np.stack([((centre - taps) ** 2).sum(axis=1) <= radius**2 for centre in grid])
        for _ in range(_POLICIES // len(_RADII)):
            best = int(near.sum(axis=1).argmax())
            points.append(grid[best])
            near = near & ~near[best]
    return points


def _texts(tables: Sequence[StepTable], kind: ActionKind) -> list[str]:
    """The most frequent gold texts of a kind, and the letters that most of them have: where one text in the other
    counts, a letter is right."""
    found: Counter[str] = Counter()
    for table in tables:
        found.update(table.gold.text.filter(pa.array(table.gold.kind == kind)).to_pylist())
    letters = Counter(letter for text, count in found.items() for letter in set(text.lower()) for _ in range(count))
    half = _POLICIES // 2
    return [text for text, _ in (*found.most_common(half), *letters.most_common(half)) if text] or [""]


def _actions(table: StepTable) -> Iterable[tuple]:
    """Kind, touch, lift and text of the gold actions, with points to a hundredth."""
    touches, lifts = (map(tuple, np.round(ends, 2).tolist()) for ends in (table.gold.touch, table.gold.lift))
    return zip(table.gold.kind.tolist(), touches, lifts, table.gold.text.to_pylist(), strict=True)


def _constant(tables: Sequence[StepTable], actions: Sequence[tuple]) -> list[StepTable]:
    """The tables with the most frequent one of `actions` as every answer."""
    if not actions:
        return list(tables)
    counts = Counter(actions)
    most_frequent = Action(*min(counts, key=lambda action: (-counts[action], action)))
    return [_answered(table, action_columns([most_frequent] * len(table))) for table in tables]
