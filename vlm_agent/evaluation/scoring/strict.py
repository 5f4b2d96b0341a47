"""The strict rule: the same element, the same text, the same direction.

The official AITW matcher accepts neighbours (boxes 2.4 times their size, any tap within 0.14) and never compares typed
text, so that a policy that ignores the screen can score well. The strict rule is our own and is reported beside it.

Taps, and likewise long presses, match if the same smallest element is under both touches. If the gold touch is outside
every element, the predicted touch must be so too and at most `TAP_DISTANCE` away. Typed text, answers and names of apps
match if they are equal in Unicode NFC, swipes if their directions are equal, other actions if their kinds are equal.

`same_element` is the rule for taps, used by the dialect `strict` for whole tables; property tests compare it with the
rule for one step. Boxes have the layout of `steps.Boxes.listed`.
"""

from typing import Any

import numpy as np

from vlm_agent.geometry import TAP_DISTANCE, boxes_at


def taps_match_strictly(gold_yx: np.ndarray, predicted_yx: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Whether taps match the gold one, for one screen and many taps: bool (P,).

    `gold_yx` (2,) is the gold touch, `predicted_yx` (P, 2) are the touches to judge, `boxes` (M, 4) the elements of the
    screen as (y, x, height, width); all are float64.
    """
    taps = len(predicted_yx)
    screen = np.repeat(np.arange(taps), len(boxes))
    return same_element(np.broadcast_to(gold_yx, (taps, 2)), predicted_yx, np.tile(boxes, (taps, 1)), screen)


def same_element(gold: np.ndarray, predicted: np.ndarray, boxes: np.ndarray, screen: np.ndarray) -> np.ndarray:
    """Whether both taps, (R, 2) as (y, x), are on the same element, or outside all and near each other, bool (R,)."""
    target, found = boxes_at(gold, boxes, screen), boxes_at(predicted, boxes, screen)
    dy, dx = (predicted - gold).T
    return (target == found) & ((target >= 0) | is_near(dy, dx))


def is_near(dy: Any, dx: Any) -> Any:
    """Whether two taps outside every element match; bit-identical for numbers and arrays."""
    return dy * dy + dx * dx <= TAP_DISTANCE * TAP_DISTANCE
