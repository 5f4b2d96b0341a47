"""From predictions to verdicts: which steps are right, by the official matcher and by the strict one."""

from collections.abc import Sequence

import numpy as np

from vlm_agent.episodes import NO_POINT, Action, UiElement
from vlm_agent.evaluation.aitw_matcher import actions_match
from vlm_agent.evaluation.predictions import Prediction
from vlm_agent.evaluation.strict import strictly_match

SCORERS = ("official", "strict")

NO_ACTION = -1
"""The type of what is no action; no gold action has it, so it matches none."""

_STEPS_AT_ONCE = 4096  # boxes are padded to the fullest screen among these


def verdicts(predictions: Sequence[Prediction]) -> dict[str, np.ndarray]:
    """Whether each prediction is right: {"official": bool (N,), "strict": bool (N,)}; no action is wrong by both."""
    strict = [strictly_match(row.gold, row.predicted, row.elements) for row in predictions]
    return {"official": _official(predictions), "strict": np.array(strict, bool)}


def _official(predictions: Sequence[Prediction]) -> np.ndarray:
    parts = [np.zeros(0, bool)]
    for start in range(0, len(predictions), _STEPS_AT_ONCE):
        rows = predictions[start : start + _STEPS_AT_ONCE]
        gold = action_arrays([row.gold for row in rows])
        predicted = action_arrays([row.predicted for row in rows])
        parts.append(actions_match(*gold, *predicted, *box_arrays([row.elements for row in rows])))
    return np.concatenate(parts)


def action_arrays(actions: Sequence[Action | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Touch and lift, float32 (N, 2), and types, int (N,), as the matcher takes them; None has type `NO_ACTION`."""
    touch = [NO_POINT if action is None else action.touch_yx for action in actions]
    lift = [NO_POINT if action is None else action.lift_yx for action in actions]
    types = [NO_ACTION if action is None else action.kind for action in actions]
    return (
        np.asarray(touch, np.float32).reshape(-1, 2),
        np.asarray(lift, np.float32).reshape(-1, 2),
        np.asarray(types, np.int64),
    )


def box_arrays(screens: Sequence[tuple[UiElement, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """Boxes, float32 (N, M, 4), padded with zeros to the fullest screen, and how many of each row count, int (N,)."""
    counts = np.array([len(elements) for elements in screens], np.int64)
    boxes = np.zeros((len(screens), counts.max(initial=0), 4), np.float32)
    for row, elements in zip(boxes, screens, strict=True):
        for index, element in enumerate(elements):
            row[index] = element.box
    return boxes, counts
