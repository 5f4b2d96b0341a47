"""Boxes as arrays: overlap, suppression, and their conversion to screen fractions. Rows are (y0, x0, y1, x1)."""

from collections.abc import Iterable, Sequence

import numpy as np

from vlm_agent.episodes import Widget


def overlap(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """(N, 4), (M, 4) → (N, M): intersection over union, float64; 0 where both are empty."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    intersection = np.prod(np.maximum(high - low, 0), axis=2).astype(np.float64)
    areas = [np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1) for boxes in (first, second)]
    union = areas[0][:, None] + areas[1][None] - intersection
    return np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)


def suppressed(
    boxes: np.ndarray, scores: np.ndarray, kinds: np.ndarray, limit: float, limit_across: float = 1.0
) -> np.ndarray:
    """Greedy non-maximum suppression: the indices that remain, best score first.

    A box is dropped where its IoU with a better box of its kind exceeds `limit`, or with one of another kind
    `limit_across`.
    """
    order = np.argsort(-scores, kind="stable")
    ious = overlap(boxes, boxes)
    conflicts = ious > np.where(kinds[:, None] == kinds[None], limit, limit_across)
    is_dropped = np.zeros(len(boxes), bool)
    for at, index in enumerate(order):
        if not is_dropped[index]:
            rest = order[at + 1 :]
            is_dropped[rest] |= conflicts[index, rest]
    return order[~is_dropped[order]]


def fraction_box(box: Sequence[float] | np.ndarray, height: float, width: float) -> tuple[float, float, float, float]:
    """(y0, x0, y1, x1) in pixels → (y, x, height, width) in fractions, cut at the edges of the picture."""
    y0, x0, y1, x1 = (
        float(np.clip(value / limit, 0, 1)) for value, limit in zip(box, (height, width, height, width), strict=True)
    )
    return (y0, x0, max(0.0, y1 - y0), max(0.0, x1 - x0))


def corners(widgets: Iterable[Widget]) -> np.ndarray:
    """(N, 4) corners in screen fractions, float64."""
    rows = np.array([widget.box for widget in widgets], np.float64).reshape(-1, 4)
    rows[:, 2:] += rows[:, :2]
    return rows


def in_reading_order(widgets: Iterable[Widget]) -> tuple[Widget, ...]:
    """From top to bottom, then from left to right."""
    return tuple(sorted(widgets, key=lambda widget: (widget.box[0], widget.box[1], widget.kind)))
