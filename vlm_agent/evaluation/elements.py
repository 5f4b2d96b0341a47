"""Which element a tap is on, for many taps at once.

Boxes come as `Boxes.listed` gives them: those of all screens one after the other, float64 (P, 4) as (y, x, height,
width), with the number of their screen, (P,), rising.
"""

import numpy as np

from vlm_agent.episodes import TAP_DISTANCE
from vlm_agent.evaluation.aitw_matcher import MATCH_DISTANCE


def elements_at(points: np.ndarray, boxes: np.ndarray, screen: np.ndarray) -> np.ndarray:
    """Index into `boxes` of the smallest element under each screen's point (R, 2), -1 where there is none, (R,).

    Of equally small ones the first: as `episodes.element_at`, to the last bit.
    """
    inside = _holds(boxes[:, 0], boxes[:, 2], points[screen, 0])
    inside = inside[_holds(boxes[inside, 1], boxes[inside, 3], points[screen[inside], 1])]
    smallest_first = inside[np.lexsort((boxes[inside, 2] * boxes[inside, 3], screen[inside]))]
    under = np.full(len(points), -1)
    with_one, first = np.unique(screen[smallest_first], return_index=True)
    under[with_one] = smallest_first[first]
    return under


def _holds(corner: np.ndarray, size: np.ndarray, value: np.ndarray) -> np.ndarray:
    return np.flatnonzero((corner <= value) & (value <= corner + size))


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
