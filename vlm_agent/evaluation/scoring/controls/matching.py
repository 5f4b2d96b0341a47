"""The scorers of AndroidControl and GUI-Odyssey as one class with a setting for each thing in which they differ.

A gesture whose ends differ is a swipe here, however short: AITW's rule of 0.04 is not theirs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from vlm_agent.episodes import ACTION_NAMES, ActionKind
from vlm_agent.errors import UserError
from vlm_agent.evaluation.scoring.controls.points import same_direction
from vlm_agent.evaluation.scoring.steps import UNPARSED_NAME, Actions, Rule, Ruling, StepTable

ENDS = ("complete", "impossible")
POINTED = ("tap", "long_press")
BUTTONS = ("back", "home", "enter", "recents")


@dataclass(frozen=True)
class Crossing:
    """A predicted kind that is judged although the gold action is of another one: `matches` maps rows of the two kinds
    to whether they are right, and `same_kind` to whether their kinds count as equal, by default none do."""

    gold: str
    predicted: str
    matches: Rule
    same_kind: Rule | None = None


@dataclass(frozen=True)
class Matching:
    """A published scorer.

    `rule` and `source` as in `dialects.Dialect`. Names are those of `ACTION_NAMES`. `points` judges taps and long
    presses, `swipes` strokes, by default by their direction, `texts` typed text and names of apps; other actions match
    by name.

    `one_kind`: names that count as one kind, in groups; those of a group in `equal` are also right. `gold_as`: gold
    names that are read as another one. `unreadable`: predicted names that the scorer's reader refuses. `left_out`: gold
    names whose steps do not count. `drops_unread`: whether a step with an unreadable answer does not count. `free`:
    gold names that are judged whatever the predicted kind is. `kinds_only`: gold names whose steps count for the share
    of right kinds alone. `needs_size`: whether the size of every screen must be known. `slips`: what is a mistake
    rather than a rule of the published code and shifts its numbers as a whole: the settings without it, by name.
    """

    rule: str
    source: str
    points: Rule
    texts: Mapping[str, Rule]
    swipes: Rule = same_direction
    one_kind: tuple[tuple[str, ...], ...] = ()
    equal: tuple[str, ...] = ()
    gold_as: Mapping[str, str] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ENDS
    kinds_only: tuple[str, ...] = ()
    drops_unread: bool = False
    free: tuple[str, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    needs_size: bool = True
    slips: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def judge(self, table: StepTable) -> Ruling:
        """The verdict on each step. Raises UserError naming what the steps lack for this scorer."""
        self._check(table)
        gold, predicted = _read_as(self.gold_as)[strokes(table.gold)], strokes(table.predicted)
        predicted[_among(predicted, self.unreadable)] = UNPARSED_NAME
        classes = _read_as({name: group[0] for group in self.one_kind for name in group})
        same_kind = (classes[gold] == classes[predicted]) & (predicted != UNPARSED_NAME)
        right = (gold == predicted) | (_among(gold, self.equal) & same_kind)
        texts = [((name,), rule) for name, rule in self.texts.items()]
        for names, rule in [(POINTED, self.points), (("swipe",), self.swipes), *texts]:
            rows = np.flatnonzero(_among(gold, names) & (same_kind | _among(gold, self.free)))
            right[rows] = rule(table, rows)
        for crossing in self.crossings:
            both = (gold == _index(crossing.gold)) & (predicted == _index(crossing.predicted))
            rows = np.flatnonzero(both)
            right[rows] |= crossing.matches(table, rows)
            if crossing.same_kind is not None:
                same_kind[rows] |= crossing.same_kind(table, rows)
        has_kind = ~_among(strokes(table.gold), self.left_out)
        if self.drops_unread:
            has_kind &= predicted != UNPARSED_NAME
        counts = ~_among(gold, self.kinds_only)
        return Ruling(right & counts, same_kind, has_kind & counts, has_kind)

    def without(self, slip: str) -> "Matching":
        """The same scorer without one of its `slips`."""
        return replace(self, **self.slips[slip], slips={})  # type: ignore[arg-type]

    def _check(self, table: StepTable) -> None:
        if self.needs_size and (wrong := (table.size <= 0).any(axis=1)).any():
            where = f"{table.episode_id[int(wrong.argmax())]}, step {table.step[wrong.argmax()]}"
            raise UserError(f"episode {where}: the size of the screen is missing, which this dialect needs")


def strokes(actions: Actions) -> np.ndarray:
    """`Actions.name`, where a gesture is a tap only if both ends are equal."""
    moves = (actions.kind == ActionKind.DUAL_POINT) & (actions.touch != actions.lift).any(axis=1)
    return np.where(moves, np.int8(_index("swipe")), actions.name)


def _read_as(names: Mapping[str, str]) -> np.ndarray:
    """`Actions.name` → the value that is read in its place. `names`: a name → the name that replaces it."""
    read = np.arange(len(ACTION_NAMES) + 1)
    for name, other in names.items():
        read[_index(name)] = _index(other)
    return read


def _among(actions: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    return np.isin(actions, [_index(name) for name in names])


def _index(name: str) -> int:
    return ACTION_NAMES.index(name)
