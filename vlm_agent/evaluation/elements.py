"""Whether taps are on the same element, for many at once.

Boxes come as `Boxes.listed` gives them, and as `datasets/touched.py` has them.
"""

import numpy as np

from vlm_agent.datasets.touched import elements_at
from vlm_agent.episodes import TAP_DISTANCE
from vlm_agent.evaluation.aitw_matcher import MATCH_DISTANCE


def same_element(gold: np.ndarray, predicted: np.ndarray, boxes: np.ndarray, screen: np.ndarray) -> np.ndarray:
    """Whether both taps (R, 2) are on the same element, or on none and near each other, bool (R,)."""
    target, found = elements_at(gold, boxes, screen), elements_at(predicted, boxes, screen)
    dy, dx = (predicted - gold).T
    return (target == found) & ((target >= 0) | is_near(dy, dx))


def is_near(dy, dx):
    """Whether a tap is where another is, on no element; the same for numbers and for arrays, to the last bit."""
    return dy * dy + dx * dx <= TAP_DISTANCE * TAP_DISTANCE


def touches_the_element(gold: np.ndarray, predicted: np.ndarray, boxes: np.ndarray, screen: np.ndarray) -> np.ndarray:
    """Whether the element under the predicted tap holds the gold tap, or has a corner or its centre near it, bool (R,).

    A predicted tap on no element is compared itself. Near is within `MATCH_DISTANCE`.
    """
    found = elements_at(predicted, boxes, screen)
    box = np.column_stack([predicted, np.zeros_like(predicted)])
    box[found >= 0] = boxes[found[found >= 0]]
    moved = gold - box[:, :2]
    size = box[:, 2:]
    right = ((moved >= 0) & (gold <= box[:, :2] + size)).all(axis=1)
    for share in ((0, 0), (0, 1), (1, 0), (1, 1), (0.5, 0.5)):
        dy, dx = (moved - np.array(share) * size).T
        right |= np.hypot(dy, dx) <= MATCH_DISTANCE
    return right
