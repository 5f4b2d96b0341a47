"""The AITW action matcher on arrays: the verdicts of the official code, without its per-step calls.

Android in the Wild (Rawles et al. 2023) published a matcher in JAX (google-research, `android_in_the_wild/
action_matching.py`). This is the same decision in numpy, in float32 and in the same order of operations as that code
run eagerly on a CPU, because a verdict at a threshold hangs on the last bit.
"""

import numpy as np

from vlm_agent.episodes import TAP_DISTANCE, ActionKind, aitw_distance

MATCH_DISTANCE = 0.14
"""Two taps at most this far apart (Euclidean, screen fractions) match wherever they are."""

BOX_GROWTH = 1.4
"""What is added to a box's height and width, as a share of them: 1.4 makes a box 2.4 times as large."""

_BOXES_AT_ONCE = 1 << 16
"""Boxes tested in one go; the temporaries of this many stay in a core's cache."""


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
    is (N, M, 4) with (y, x, height, width), of which the first `box_counts[n]` of row n count and the rest is padding
    of any content. Everything real is computed in float32; other float types are rounded to it first.

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
    touch_1, lift_1, touch_2, lift_2, boxes = (
        np.asarray(array, np.float32) for array in (touch_1, lift_1, touch_2, lift_2, boxes)
    )
    type_1, type_2, box_counts = (np.asarray(array) for array in (type_1, type_2, box_counts))
    _check_shapes(touch_1, lift_1, type_1, touch_2, lift_2, type_2, boxes, box_counts)
    with np.errstate(over="ignore", invalid="ignore"):
        tap_1, tap_2 = (
            aitw_distance(t, e) <= np.float32(TAP_DISTANCE) for t, e in ((touch_1, lift_1), (touch_2, lift_2))
        )
        gestures = (type_1 == ActionKind.DUAL_POINT) & (type_2 == ActionKind.DUAL_POINT)
        taps = gestures & tap_1 & tap_2
        near = aitw_distance(touch_1, touch_2) <= np.float32(MATCH_DISTANCE)
        same_axis = _main_axis(touch_1, lift_1) == _main_axis(touch_2, lift_2)
        matched = np.where(gestures, ~tap_1 & ~tap_2 & same_axis, type_1 == type_2)
        matched |= taps & near
        undecided = np.flatnonzero(taps & ~near & (box_counts > 0))
        matched[undecided] = _share_a_box(touch_1, touch_2, boxes, box_counts, undecided)
    return matched


def _check_shapes(touch_1, lift_1, type_1, touch_2, lift_2, type_2, boxes, box_counts):
    n = len(touch_1)
    points = {"touch_1": touch_1, "lift_1": lift_1, "touch_2": touch_2, "lift_2": lift_2}
    wrong = [f"{name} {array.shape}" for name, array in points.items() if array.shape != (n, 2)]
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


def _main_axis(touch: np.ndarray, lift: np.ndarray) -> np.ndarray:
    """0 for y, 1 for x; argmax takes the first of equals, and NaN for the largest."""
    return np.argmax(np.abs(lift - touch), axis=1)


def _share_a_box(touch_1, touch_2, boxes, box_counts, rows) -> np.ndarray:
    """Whether one of a row's boxes, enlarged, holds both touches, which are finite; bool (len(rows),)."""
    least, most = np.minimum(touch_1, touch_2), np.maximum(touch_1, touch_2)
    slots = boxes.shape[1]
    shared = np.zeros(len(touch_1), bool)
    at_once = max(1, _BOXES_AT_ONCE // max(1, slots))
    for start in range(0, len(rows), at_once):
        chunk = rows[start : start + at_once]
        held = _hold(least[chunk, :1], most[chunk, :1], boxes[chunk, :, 0], boxes[chunk, :, 2])
        # Few boxes are left after y, so x is looked at box by box, as pairs of row and slot.
        row, slot = np.divmod(np.flatnonzero(held), slots)
        row = chunk[row]
        holds = _hold(least[row, 1], most[row, 1], boxes[row, slot, 1], boxes[row, slot, 3])
        shared[row[holds & (slot < box_counts[row])]] = True
    return shared[rows]


def _hold(least, most, corner, size) -> np.ndarray:
    """Whether, along one axis, the enlarged boxes hold both of two values, given as the lesser and the greater.

    Overwrites `corner` and `size`: fresh arrays at each operation would take longer than the arithmetic.
    """
    growth = np.float32(BOX_GROWTH) * size
    size += growth
    np.minimum(size, np.float32(1), out=size)
    growth /= np.float32(2)
    corner -= growth
    np.maximum(corner, np.float32(0), out=corner)
    last = np.add(corner, size, out=size)
    return (least >= corner) & (most <= last)
