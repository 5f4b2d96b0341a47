"""One predictions file under many scorers: what each counts, what it gives, and what a blind policy gets from it.

The blind ceiling and the most frequent action are chosen with hindsight on the scored steps, since a predictions file
has no training split.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress
from pathlib import Path

import numpy as np
import pyarrow as pa

from vlm_agent.action_languages.language import SWIPES
from vlm_agent.episodes import ACTION_NAMES, KINDS_WITH_TEXT, Action, ActionKind
from vlm_agent.evaluation.predictions import Prediction
from vlm_agent.evaluation.scoring.controls import android_control, gui_odyssey
from vlm_agent.evaluation.scoring.dialects import AITW, Scorer, find_dialect
from vlm_agent.evaluation.scoring.judged import numbered
from vlm_agent.evaluation.scoring.measures import interval, percent, resampled
from vlm_agent.evaluation.scoring.steps import Ruling, Steps, StepTable, step_tables

_POLICIES = 8
"""Blind policies that are tried; each has one action for each kind of gold action."""

_GRID = 24
_RADII = (0.14, 0.04)


def dialects_of(table: StepTable) -> tuple[str, ...]:
    """The scorers of the data set of these steps: GUI-Odyssey marks gold boxes, AndroidControl has windows or
    instructions of the steps; other steps are AITW's."""
    if len(table.targets.values):
        return ("strict", *gui_odyssey.DIALECTS)
    if len(table.node_index) > len(table.shown) or any(table.instruction.to_pylist()):
        return ("strict", *android_control.DIALECTS)
    return tuple(AITW)


def spread(
    source: Steps, scorers: Sequence[str] = (), grey: Path | Sequence[Prediction] | None = None
) -> dict[str, dict]:
    """A row for each of `scorers`, by default `dialects_of`; shares are percentages.

    `steps` count and `left_out` do not. `step_success`: right among them, with an `interval` by bootstrap over
    episodes. `kind`: answers of the right kind. `grounding`: right among gold taps and long presses. `blind_ceiling`:
    the best of a few actions for each kind of gold action, a lower bound. `most_frequent`: the most frequent gold
    action as every answer. Both answer every step, also those that count only with an answer. `grey`: the step success
    of the run `grey`, None without it. `slips`: for each slip of the published code the `steps` that it decides and the
    step success `without` it.

    Raises UserError naming what the steps lack, and every error of `step_tables`.
    """
    tables = list(step_tables(source))
    names = tuple(scorers) or (dialects_of(tables[0]) if tables else tuple(AITW))
    dialects = {name: find_dialect(name) for name in names}
    _, episode = numbered(table.episode_id for table in tables)
    pointed = np.concatenate([table.gold.is_touch for table in tables])
    kinds = np.concatenate([table.gold.name for table in tables])
    policies = _policies(tables)
    actions = [action for table in tables for action in _actions(table)]
    rows = {}
    for name, dialect in dialects.items():
        ruling = _judge(dialect, tables)
        right, counted = ruling.right & ruling.counted, int(ruling.counted.sum())
        quotient = np.bincount(episode, weights=right), np.bincount(episode, weights=ruling.counted)
        rulings = [_judge(dialect, (table.answered(policy) for table in tables)) for policy in policies]
        best = [np.bincount(kinds[one.right & one.counted], minlength=len(ACTION_NAMES)) for one in rulings]
        possible = np.any([one.counted for one in (ruling, *rulings)], axis=0)
        rows[name] = {
            "steps": counted,
            "left_out": len(kinds) - counted,
            "step_success": percent(*quotient),
            "interval": interval(resampled(*quotient, "step_success"), lowest=0.0),
            "kind": _share(ruling.same_kind & ruling.has_kind, ruling.has_kind),
            "grounding": _share(right & pointed, ruling.counted & pointed),
            "blind_ceiling": 100 * int(np.max(best, axis=0).sum()) / int(possible.sum()) if possible.any() else None,
            "most_frequent": _success_of(dialect, _constant(tables, list(compress(actions, possible)))),
            "grey": None if grey is None else _success_of(dialect, step_tables(grey)),
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


def _slips(dialect: Scorer, tables: Sequence[StepTable], ruling: Ruling) -> dict[str, dict]:
    found, right = {}, ruling.right & ruling.counted
    for slip in dialect.slips:
        without = _judge(dialect.without(slip), tables)
        without_right = without.right & without.counted
        decided = (right != without_right) | (ruling.counted != without.counted)
        found[slip] = {"steps": int(decided.sum()), "without": _share(without_right, without.counted)}
    return found


def _policies(tables: Sequence[StepTable]) -> list[dict[str, Action]]:
    """Taps where most gold taps lie near, four swipes, and the most frequent texts and letters: by policy, one answer
    for each of `ACTION_NAMES`."""
    taps = np.concatenate([table.gold.touch[table.gold.is_touch] for table in tables])
    texts, strokes = {kind: _texts(tables, kind) for kind in KINDS_WITH_TEXT}, [*SWIPES.values()]
    return [
        {
            "tap": Action.tap(*point),
            "swipe": Action.swipe(*strokes[number % len(strokes)]),
            **{kind.short_name: Action(kind, tuple(point)) for kind in ActionKind if kind.facts.points == 1},
            **{kind.short_name: Action(kind) for kind in ActionKind if not kind.facts.points},
            **{kind.short_name: Action(kind, text=found[number % len(found)]) for kind, found in texts.items()},
        }
        for number, point in enumerate(_dense_points(taps))
    ]


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
    return [table.answered(dict.fromkeys(ACTION_NAMES, most_frequent)) for table in tables]
