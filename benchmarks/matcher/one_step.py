"""The baseline: AITW's matcher called once per step, as in published evaluations.

They loop over the steps in Python and call the matcher with the boxes of each step: Auto-UI's `main.py` and SeeClick's
`aitw_test.py` eagerly, others through `jax.jit`.

`match_step` runs exactly the array operations of the published function, in its order: it also enlarges every box and
compares swipes whatever the actions are. With numpy in place of `jax.numpy` it is faster than JAX, eager or jitted.
`match_step_lean` is the fastest function per step that was found: fewer operations, and no use of boxes where they
cannot change the verdict.
"""

import numpy as np

DUAL_POINT = 4
TAP, NEAR, GROWTH = np.float32(0.04), np.float32(0.14), np.float32(1.4)


def match_step(xp, touch_1, lift_1, type_1, touch_2, lift_2, type_2, boxes):
    """One verdict. `xp` is numpy or jax.numpy; points are (2,), `boxes` (M, 4) as (y, x, height, width), float32."""
    touch_1, lift_1, touch_2, lift_2 = (xp.asarray(point) for point in (touch_1, lift_1, touch_2, lift_2))
    some_other_kind = xp.logical_or(xp.not_equal(type_1, DUAL_POINT), xp.not_equal(type_2, DUAL_POINT))
    unlike = xp.logical_xor(_is_tap(xp, touch_1, lift_1), _is_tap(xp, touch_2, lift_2))
    taps = xp.logical_and(_is_tap(xp, touch_1, lift_1), _is_tap(xp, touch_2, lift_2))
    same_place = xp.logical_and(taps, _same_place(xp, touch_1, touch_2, boxes))
    same_axis = xp.where(taps, False, xp.equal(_main_axis(xp, touch_1, lift_1), _main_axis(xp, touch_2, lift_2)))
    gestures = xp.where(unlike, False, xp.logical_or(same_place, same_axis))
    return xp.where(some_other_kind, xp.equal(type_1, type_2), gestures)


def _is_tap(xp, touch, lift):
    return xp.linalg.norm(xp.array(touch) - xp.array(lift)) <= TAP


def _main_axis(xp, touch, lift):
    return xp.argmax(xp.abs(lift - touch))


def _same_place(xp, tap_1, tap_2, boxes):
    enlarged = _enlarge(xp, boxes)
    in_one_box = xp.max(_inside(xp, tap_1, enlarged) & _inside(xp, tap_2, enlarged))
    near = xp.linalg.norm(xp.array(tap_1) - xp.array(tap_2)) <= NEAR
    return xp.logical_or(in_one_box, near)


def _enlarge(xp, boxes):
    more_height, more_width = GROWTH * boxes[:, 2], GROWTH * boxes[:, 3]
    sides = [
        xp.maximum(0, boxes[:, 0] - more_height / 2),
        xp.maximum(0, boxes[:, 1] - more_width / 2),
        xp.minimum(1, boxes[:, 2] + more_height),
        xp.minimum(1, boxes[:, 3] + more_width),
    ]
    return xp.stack(sides, axis=1)


def _inside(xp, point, boxes):
    y, x = point
    top, left, height, width = (xp.squeeze(side, axis=-1) for side in xp.split(boxes, 4, axis=-1))
    bottom, right = top + height, left + width
    return xp.logical_and(y >= top, y <= bottom) & xp.logical_and(x >= left, x <= right)


def match_step_lean(touch_1, lift_1, type_1, touch_2, lift_2, type_2, boxes):
    """The same verdict with numpy, returning as early as possible."""
    if type_1 != DUAL_POINT or type_2 != DUAL_POINT:
        return type_1 == type_2
    moved_1, moved_2 = lift_1 - touch_1, lift_2 - touch_2
    tap_1, tap_2 = np.sqrt(moved_1 @ moved_1) <= TAP, np.sqrt(moved_2 @ moved_2) <= TAP
    if tap_1 != tap_2:
        return False
    if not tap_1:
        return np.abs(moved_1).argmax() == np.abs(moved_2).argmax()
    distance = touch_2 - touch_1
    if np.sqrt(distance @ distance) <= NEAR:
        return True
    growth = GROWTH * boxes[:, 2:]
    corner = np.maximum(boxes[:, :2] - growth / 2, 0)
    end = corner + np.minimum(boxes[:, 2:] + growth, 1)
    is_inside = (np.minimum(touch_1, touch_2) >= corner) & (np.maximum(touch_1, touch_2) <= end)
    return (is_inside[:, 0] & is_inside[:, 1]).any()
