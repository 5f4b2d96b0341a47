"""D-PoT's two rules for clicks, which judge the chosen element in place of a point.

`touches_the_element` is the rule of the paper's text (appendix A.3), `box_matches_tap` that of its published
code. Boxes are (y, x, height, width), points (y, x), in screen fractions and float64.
"""

import numpy as np

from vlm_agent.evaluation.scoring.aitw_matcher import BOX_GROWTH, MATCH_DISTANCE, within
from vlm_agent.geometry import boxes_at

FIVE_POINTS = ((0, 0), (0, 1), (1, 0), (1, 1), (0.5, 0.5))
"""The corners of a box and its centre, (y, x) as shares of its height and width (D-PoT, appendix A.3)."""


def touches_the_element(gold: np.ndarray, predicted: np.ndarray, boxes: np.ndarray, screen: np.ndarray) -> np.ndarray:
    """Whether the element under the predicted tap contains the gold tap, or has a corner or its centre near it.

    Returns bool (R,). A predicted tap outside every element is compared itself. Near means within `MATCH_DISTANCE`.
    """
    found = boxes_at(predicted, boxes, screen)
    box = np.column_stack([predicted, np.zeros_like(predicted)])
    box[found >= 0] = boxes[found[found >= 0]]
    offset = gold - box[:, :2]
    size = box[:, 2:]
    right = ((offset >= 0) & (gold <= box[:, :2] + size)).all(axis=1)
    for share in FIVE_POINTS:
        dy, dx = (offset - np.array(share) * size).T
        right |= np.hypot(dy, dx) <= MATCH_DISTANCE
    return right


def box_matches_tap(gold: np.ndarray, box: np.ndarray, elements: np.ndarray, screen: np.ndarray) -> np.ndarray:
    """Whether the answered box, (R, 4), contains the gold tap, (R, 2), or has a corner or its centre that matches the
    gold tap by the official rule. Returns bool (R,); `elements` and `screen` are in the layout of `steps.Boxes.listed`.

    The published code enlarges elements in float64 and compares in float32; the official matcher does both in float32.
    A verdict on the edge of an enlarged element depends on it.
    """
    right = _lie_between(gold, box[:, :2], box[:, :2] + box[:, 2:])
    low, high = _enlarged(elements)
    tap = gold.astype(np.float32)
    around_tap = np.flatnonzero(_lie_between(tap[screen], low, high))
    low, high, screen = low[around_tap], high[around_tap], screen[around_tap]
    for share in FIVE_POINTS:
        point = (box[:, :2] + np.array(share) * box[:, 2:]).astype(np.float32)
        right[within(tap, point, MATCH_DISTANCE)] = True
        right[screen[_lie_between(point[screen], low, high)]] = True
    return right


def _enlarged(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and last corners, float32 (P, 2) each, of boxes float64 (P, 4), as the official rule enlarges them."""
    with np.errstate(over="ignore", invalid="ignore"):
        growth = BOX_GROWTH * boxes[:, 2:]
        low = np.maximum(0, boxes[:, :2] - growth / 2).astype(np.float32)
        return low, low + np.minimum(1, boxes[:, 2:] + growth).astype(np.float32)


def _lie_between(points: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """bool (P,): whether each point lies between two corners, edges included; all are (P, 2)."""
    return np.asarray(((points >= low) & (points <= high)).all(axis=1))
