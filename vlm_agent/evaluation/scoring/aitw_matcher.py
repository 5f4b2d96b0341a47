"""The AITW action matcher on arrays: the verdicts of the official code, without its per-step calls.

Android in the Wild (Rawles et al. 2023) published a matcher in JAX (google-research, `android_in_the_wild/
action_matching.py`). This is the same decision in numpy, in float32 and in the same order of operations as that code
run eagerly on a CPU, because a verdict at a threshold hangs on the last bit.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from vlm_agent.episodes import ActionKind
from vlm_agent.geometry import TAP_DISTANCE, aitw_distance

MATCH_DISTANCE = 0.14
"""Two taps at most this far apart (Euclidean, screen fractions) match wherever they are."""

BOX_GROWTH = 1.4
"""What is added to a box's height and width, as a share of them: 1.4 makes a box 2.4 times as large."""

_PAIRS_AT_ONCE = 1 << 14
_BOXES_AT_ONCE = 1 << 16
"""Pairs and boxes looked at in one go; the temporaries of this many stay in a core's cache."""


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
    """Whether each of N pairs of actions would do the same, bool (N,); symmetric in the two actions.

    `touch_*` and `lift_*` are (N, 2) points (y, x) in screen fractions, `type_*` are (N,) AITW action types, `boxes`
    is (N, M, 4) with (y, x, height, width): the first `box_counts[n]` of row n count, and the rest is padding of any
    content. Everything real is computed in float32; other float types are rounded to it first.

    - One or both no dual-point gesture: match where the types are equal (typed text is not compared).
    - Two taps (touch and lift at most `TAP_DISTANCE` apart): match where the touches are at most `MATCH_DISTANCE`
      apart, or where one enlarged box holds both. A box grows about its centre but is then cut to the screen at its
      corner and in its *size*, so a box whose corner was cut reaches further down or right than its centre would
      say. Edges are inside.
    - Two swipes: match where the main axis, the one of greatest movement, is the same; ties go to y. Direction and
      place do not count.
    - A tap and a swipe never match.

    Degenerate input follows from the same arithmetic and never raises or warns: N = 0 gives an empty array; with no
    boxes (M = 0 or a count of 0) only the distance decides; points off the screen are compared like any other;
    a gesture whose length is NaN or infinite is a swipe (also one from infinity to the same infinity), whose main
    axis is the first that is NaN, else the larger one; NaN or infinity in a box makes each comparison it enters
    what IEEE 754 says, false for NaN.

    Raises ValueError where the shapes disagree or a count is outside 0 … M.
    """
    points = [np.ascontiguousarray(array, np.float32) for array in (touch_1, lift_1, touch_2, lift_2)]
    boxes = np.asarray(boxes, np.float32)
    type_1, type_2, box_counts = (np.asarray(array) for array in (type_1, type_2, box_counts))
    _check_shapes(points, type_1, type_2, boxes, box_counts)
    matched = type_1 == type_2
    gestures = np.flatnonzero(matched & (type_1 == int(ActionKind.DUAL_POINT)))
    for start in range(0, len(gestures), _PAIRS_AT_ONCE):
        rows = gestures[start : start + _PAIRS_AT_ONCE]
        pairs = tuple(array.take(rows, axis=0) for array in points)
        right, undecided = match_without_boxes(*pairs)
        for some in pieces(undecided, boxes.shape[1]):
            where = rows.take(some)
            touches = (pairs[0].take(some, axis=0), pairs[2].take(some, axis=0))
            right[some] = share_a_box(*touches, boxes[where], box_counts[where])
        matched[rows] = right
    return matched


def match_without_boxes(
    touch_1: np.ndarray, lift_1: np.ndarray, touch_2: np.ndarray, lift_2: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of pairs of gestures, points float32 (N, 2): which match without a look at boxes, bool (N,), and the indices of
    those that are left to the boxes: two taps further apart than `MATCH_DISTANCE`."""
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
    """Whether the main axis is x: as argmax has it, which takes the first of equals, and NaN for the largest."""
    with np.errstate(over="ignore", invalid="ignore"):
        moved = np.abs(lift - touch)
    dy, dx = moved[:, 0], moved[:, 1]
    return ~(dy >= dx) & (dy == dy)


def pieces(rows: np.ndarray, boxes_a_row: int) -> Iterator[np.ndarray]:
    """`rows` in parts whose boxes stay in a core's cache; nothing where a row has none."""
    if boxes_a_row:
        at_once = max(1, _BOXES_AT_ONCE // boxes_a_row)
        yield from (rows[start : start + at_once] for start in range(0, len(rows), at_once))


def share_a_box(
    tap_1: np.ndarray, tap_2: np.ndarray, boxes: np.ndarray, box_counts: np.ndarray, growth: float = BOX_GROWTH
) -> np.ndarray:
    """Whether one of a row's boxes, made larger by `growth` of its size, holds both taps, bool (N,).

    Taps float32 (N, 2) and finite, boxes float32 (N, M, 4) as (y, x, height, width); the first `box_counts`
    of a row count.
    """
    least, most = np.minimum(tap_1, tap_2), np.maximum(tap_1, tap_2)
    held = _hold(least[:, :1], most[:, :1], boxes[:, :, 0], boxes[:, :, 2], growth)
    # Few boxes are left after y, so x is looked at box by box.
    slots = np.flatnonzero(held)
    row = slots // boxes.shape[1]
    left = boxes.reshape(-1, 4).take(slots, axis=0)
    held = _hold(least[:, 1].take(row), most[:, 1].take(row), left[:, 1], left[:, 3], growth)
    shared = np.zeros(len(boxes), bool)
    shared[row[held & (slots - row * boxes.shape[1] < box_counts.take(row))]] = True
    return shared


def _hold(least: np.ndarray, most: np.ndarray, corner: np.ndarray, size: np.ndarray, growth: float) -> np.ndarray:
    """Whether, along one axis, the enlarged boxes hold both of two values, given as the lesser and the greater.

    In place wherever it can be, as fresh arrays take longer than the arithmetic, and by `clip`, as `maximum` against
    a number does too.
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
        held = first <= least
        held &= last >= most
    return held


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
