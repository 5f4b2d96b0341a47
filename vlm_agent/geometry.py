"""Geometry of actions: tap or swipe, direction of a swipe, element under a point.

Points are (y, x) and boxes (y, x, height, width), both in fractions of the screen. Functions that accept arrays of
points (..., 2) accept a single point too, so the same code judges one action and a whole column of actions.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

TAP_DISTANCE = 0.04
"""A dual-point gesture with its ends at most this far apart (Euclidean, screen fractions) is a tap
(AITW, `action_matching.py`: `_TAP_DISTANCE_THRESHOLD` decides matches, 0.04 decides taps)."""

DIRECTIONS = ("up", "down", "left", "right")
"""The directions in which the finger of a swipe moves. `directions` returns indices into this tuple."""

COAT_VERTICAL_SHARE = 0.9
"""`vertical_share` of CoAT's rule (IMNearth/CoAT, `action_utils.py`). AITW's is 1."""


def aitw_distance(a_yx: ArrayLike, b_yx: ArrayLike) -> np.ndarray:
    """Euclidean distance between points (..., 2), float32 (...), equal to the last bit to that of AITW's matcher.

    Both axes count alike, whatever the aspect ratio. The matcher's JAX norm squares x, rounds, and adds y squared in a
    fused multiply-add, which rounds once. float64 represents the square of a float32 exactly, so adding in float64 and
    rounding gives the same result. Without that, actions at a threshold would be judged differently.
    """
    delta = np.asarray(a_yx, np.float32) - np.asarray(b_yx, np.float32)
    dy, dx = delta[..., 0].astype(np.float64), delta[..., 1]
    return np.sqrt((dy * dy + dx * dx).astype(np.float32))


def are_taps(touch_yx: ArrayLike, lift_yx: ArrayLike) -> np.ndarray:
    """Whether gestures between points (..., 2) are taps, bool (...). All other gestures are swipes.

    Computed in float32, like the official matcher, so that both agree at the threshold.
    """
    return aitw_distance(touch_yx, lift_yx) <= np.float32(TAP_DISTANCE)


def directions(touch_yx: ArrayLike, lift_yx: ArrayLike, vertical_share: float = 1.0) -> np.ndarray:
    """The direction of gestures between points (..., 2): indices into `DIRECTIONS`, int (...). Meant for swipes.

    A swipe is vertical if |dy| is at least `vertical_share` of |dx|. So a tie between the axes counts as vertical, as
    in the official matcher.
    """
    delta = np.asarray(lift_yx, np.float64) - np.asarray(touch_yx, np.float64)
    dy, dx = delta[..., 0], delta[..., 1]
    vertical = np.where(dy > 0, DIRECTIONS.index("down"), DIRECTIONS.index("up"))
    horizontal = np.where(dx > 0, DIRECTIONS.index("right"), DIRECTIONS.index("left"))
    return np.where(np.abs(dy) >= vertical_share * np.abs(dx), vertical, horizontal)


def contains(box: Sequence[float], point_yx: Sequence[float]) -> bool:
    """Whether the point lies in the box, edges included."""
    y, x, height, width = box
    return y <= point_yx[0] <= y + height and x <= point_yx[1] <= x + width


def box_at(boxes: Iterable[Sequence[float]], point_yx: Sequence[float]) -> int | None:
    """Index of the smallest box that contains the point; None where no box does. Of equally small ones the first.

    The smallest, because annotations nest: of a row, a button in it and an icon in the button, the icon is meant.
    """
    areas = {index: box[2] * box[3] for index, box in enumerate(boxes) if contains(box, point_yx)}
    return min(areas, key=areas.__getitem__, default=None)


def boxes_at(points: np.ndarray, boxes: np.ndarray, screen: np.ndarray) -> np.ndarray:
    """`box_at` for R screens at once, equal to the last bit: int (R,), -1 where no box contains a screen's point.

    `points` is float64 (R, 2), one point for each screen. `boxes` is float64 (P, 4), those of all screens in sequence,
    and `screen` int (P,) the number of each box's screen, in ascending order. The result indexes `boxes`.
    """
    inside = _indices_within(boxes[:, 0], boxes[:, 2], points[screen, 0])
    inside = inside[_indices_within(boxes[inside, 1], boxes[inside, 3], points[screen[inside], 1])]
    smallest_first = inside[np.lexsort((boxes[inside, 2] * boxes[inside, 3], screen[inside]))]
    found = np.full(len(points), -1)
    screens, first = np.unique(screen[smallest_first], return_index=True)
    found[screens] = smallest_first[first]
    return found


def _indices_within(corner: np.ndarray, size: np.ndarray, value: np.ndarray) -> np.ndarray:
    return np.flatnonzero((corner <= value) & (value <= corner + size))
