"""The AITW action matcher on arrays: the verdicts of the official code, without its per-step calls.

Android in the Wild (Rawles et al. 2023) published a matcher in JAX (google-research, `android_in_the_wild/
action_matching.py`). This module computes the same decision in numpy, in float32 and in the order of operations of
that code run eagerly on a CPU, because a verdict at a threshold depends on the last bit.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from vlm_agent.episodes import ActionKind
from vlm_agent.geometry import TAP_DISTANCE, aitw_distance

MATCH_DISTANCE = 0.14
"""Two taps match at any position if they are at most this far apart (Euclidean, screen fractions)."""

BOX_GROWTH = 1.4
"""A box's height and width grow by this fraction: 1.4 makes a box 2.4 times as large."""

_PAIRS_PER_CHUNK = 1 << 14
_BOXES_PER_CHUNK = 1 << 16
"""Pairs and boxes per chunk; the temporary arrays of a chunk of this size fit in a core's cache."""


def actions_match(
    touch_1: np.ndarray,
    lift_1: np.ndarray,
    type_1: np.ndarray,
    touch_2: np.ndarray,
    lift_2: np.ndarray,
    type_2: np.ndarray,
    boxes: np.ndarray,
    box_counts: np.ndarray,
) -> np.ndarray:
    """Whether the two actions of each of N pairs match, bool (N,); symmetric in the two actions.

    `touch_*` and `lift_*` are (N, 2) points (y, x) in screen fractions. `type_*` are (N,) AITW action types. `boxes` is
    (N, M, 4) with (y, x, height, width): the first `box_counts[n]` boxes of row n are real, the rest is arbitrary
    padding. All arithmetic is float32; other float types are rounded to it first.

    - At least one action is not a dual-point gesture: they match if the types are equal. Typed text is not compared.
    - Two taps (touch and lift at most `TAP_DISTANCE` apart): they match if the touches are at most `MATCH_DISTANCE`
      apart, or if one enlarged box contains both. A box grows about its centre. Its corner is then clipped to the
      screen and its *size* to 1, so a box with a clipped corner extends too far down or right. Edges are inside.
    - Two swipes: they match if the main axis, the one with the larger movement, is the same; ties go to y. Direction
      and position are ignored.
    - A tap and a swipe never match.

    Degenerate input follows from the same arithmetic and never raises or warns:

    - N = 0 returns an empty array. Without boxes (M = 0 or a count of 0) only the distance decides.
    - Points off the screen are compared like any other.
    - A gesture whose length is NaN or infinite is a swipe, also one from infinity to the same infinity. Its main axis
      is the first that is NaN, otherwise the one with the larger movement.
    - NaN or infinity in a box is compared by IEEE 754; comparisons with NaN are false.

    Raises ValueError if the shapes disagree or a count is outside 0 … M.
    """
    points = [np.ascontiguousarray(array, np.float32) for array in (touch_1, lift_1, touch_2, lift_2)]
    boxes = np.asarray(boxes, np.float32)
    type_1, type_2, box_counts = (np.asarray(array) for array in (type_1, type_2, box_counts))
    _check_shapes(points, type_1, type_2, boxes, box_counts)
    matched = type_1 == type_2
    gestures = np.flatnonzero(matched & (type_1 == int(ActionKind.DUAL_POINT)))
    for start in range(0, len(gestures), _PAIRS_PER_CHUNK):
        rows = gestures[start : start + _PAIRS_PER_CHUNK]
        pairs = tuple(array.take(rows, axis=0) for array in points)
        right, undecided = match_without_boxes(*pairs)
        for chunk in chunks(undecided, boxes.shape[1]):
            source_rows = rows.take(chunk)
            touches = (pairs[0].take(chunk, axis=0), pairs[2].take(chunk, axis=0))
            right[chunk] = share_a_box(*touches, boxes[source_rows], box_counts[source_rows])
        matched[rows] = right
    return matched


def match_without_boxes(
    touch_1: np.ndarray, lift_1: np.ndarray, touch_2: np.ndarray, lift_2: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Which pairs of gestures match whatever the boxes are, bool (N,), and the indices of the pairs that the boxes
    decide: two taps further apart than `MATCH_DISTANCE`. Points are float32 (N, 2)."""
    tap_1, tap_2 = within(touch_1, lift_1, TAP_DISTANCE), within(touch_2, lift_2, TAP_DISTANCE)
    taps = tap_1 & tap_2
    matched = taps & within(touch_1, touch_2, MATCH_DISTANCE)
    undecided = np.flatnonzero(taps & ~matched)
    swipes = np.flatnonzero(~(tap_1 | tap_2))
    points = (array.take(swipes, axis=0) for array in (touch_1, lift_1, touch_2, lift_2))
    matched[swipes] = same_axis(*points)
    return matched, undecided


def within(a_yx: np.ndarray, b_yx: np.ndarray, limit: float) -> np.ndarray:
    """Whether points (N, 2) are at most `limit` apart, in float32, bool (N,)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return aitw_distance(a_yx, b_yx) <= np.float32(limit)


def same_axis(touch_1: np.ndarray, lift_1: np.ndarray, touch_2: np.ndarray, lift_2: np.ndarray) -> np.ndarray:
    """Whether swipes, points float32 (N, 2), have the same main axis, bool (N,)."""
    return _is_horizontal(touch_1, lift_1) == _is_horizontal(touch_2, lift_2)


def _is_horizontal(touch: np.ndarray, lift: np.ndarray) -> np.ndarray:
    """Whether the main axis is x, as argmax chooses it: the first of equal values, and NaN as the largest."""
    with np.errstate(over="ignore", invalid="ignore"):
        moved = np.abs(lift - touch)
    dy, dx = moved[:, 0], moved[:, 1]
    return ~(dy >= dx) & (dy == dy)


def chunks(rows: np.ndarray, boxes_per_row: int) -> Iterator[np.ndarray]:
    """`rows` in chunks whose boxes fit in a core's cache; no chunk if rows have no boxes."""
    if boxes_per_row:
        rows_per_chunk = max(1, _BOXES_PER_CHUNK // boxes_per_row)
        yield from (rows[start : start + rows_per_chunk] for start in range(0, len(rows), rows_per_chunk))


def share_a_box(
    tap_1: np.ndarray, tap_2: np.ndarray, boxes: np.ndarray, box_counts: np.ndarray, growth: float = BOX_GROWTH
) -> np.ndarray:
    """Whether one of a row's boxes, enlarged by the fraction `growth` of its size, contains both taps, bool (N,).

    Taps are float32 (N, 2) and finite. Boxes are float32 (N, M, 4) as (y, x, height, width); the first `box_counts` of
    a row are real.
    """
    low, high = np.minimum(tap_1, tap_2), np.maximum(tap_1, tap_2)
    contains = _contain(low[:, :1], high[:, :1], boxes[:, :, 0], boxes[:, :, 2], growth)
    # Few boxes remain after the y axis, so the x axis is computed for those alone.
    slots = np.flatnonzero(contains)
    row = slots // boxes.shape[1]
    remaining = boxes.reshape(-1, 4).take(slots, axis=0)
    contains = _contain(low[:, 1].take(row), high[:, 1].take(row), remaining[:, 1], remaining[:, 3], growth)
    result = np.zeros(len(boxes), bool)
    result[row[contains & (slots - row * boxes.shape[1] < box_counts.take(row))]] = True
    return result


def _contain(low: np.ndarray, high: np.ndarray, corner: np.ndarray, size: np.ndarray, growth: float) -> np.ndarray:
    """Whether the enlarged boxes contain both `low` and `high` along one axis.

    Works in place where possible, because allocating arrays takes longer than the arithmetic. `clip` is used for the
    same reason: `maximum` against a number is slower.
    """
    unbounded = np.float32(np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        size = size.copy()
        first = np.multiply(size, np.float32(growth))
        size += first
        first /= np.float32(2)
        np.subtract(corner, first, out=first)
        np.clip(first, np.float32(0), unbounded, out=first)
        last = np.clip(size, -unbounded, np.float32(1), out=size)
        last += first
        contains = first <= low
        contains &= last >= high
    return contains


def _check_shapes(
    points: Sequence[np.ndarray], type_1: np.ndarray, type_2: np.ndarray, boxes: np.ndarray, box_counts: np.ndarray
) -> None:
    n = len(points[0])
    names = ("touch_1", "lift_1", "touch_2", "lift_2")
    wrong = [f"{name} {array.shape}" for name, array in zip(names, points, strict=True) if array.shape != (n, 2)]
    per_row = {"type_1": type_1, "type_2": type_2, "box_counts": box_counts}
    wrong += [f"{name} {array.shape}" for name, array in per_row.items() if array.shape != (n,)]
    if boxes.ndim != 3 or boxes.shape[0] != n or boxes.shape[2] != 4:
        wrong.append(f"boxes {boxes.shape}")
    if wrong:
        raise ValueError(f"for {n} pairs, points are (N, 2), types and counts (N,), boxes (N, M, 4); got {wrong}")
    out_of_range = np.flatnonzero((box_counts < 0) | (box_counts > boxes.shape[1]))
    if len(out_of_range):
        row = out_of_range[0]
        raise ValueError(f"box_counts[{row}] is {box_counts[row]}, but a row has {boxes.shape[1]} boxes")
