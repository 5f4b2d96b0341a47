"""Geometry of actions and screens: tap or swipe, direction of a swipe, element under a point, resized pictures.

Points are (y, x) and boxes (y, x, height, width), both in fractions of the screen. Functions that accept arrays of
points (..., 2) accept a single point too, so the same code judges one action and a whole column of actions.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

TAP_DISTANCE = 0.04
"""A dual-point gesture with its ends at most this far apart (Euclidean, screen fractions) is a tap
(AITW, `action_matching.py`: `_TAP_DISTANCE_THRESHOLD` decides matches, 0.04 decides taps)."""

DIRECTIONS = ("up", "down", "left", "right")
"""The directions in which the finger of a swipe moves. `directions` returns indices into this tuple."""

OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
"""Direction of the finger → direction in which the content moves into view, and the reverse."""

AITZ_VERTICAL_SHARE = 0.9
"""`vertical_share` of AitZ's rule (its published `action_utils.py`). AITW's is 1."""


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


def float32_directions(touch_yx: ArrayLike, lift_yx: ArrayLike) -> np.ndarray:
    """`directions` of differences in float32, as AITW's matcher and Auto-UI's code compute them: rounding may tie the
    axes."""
    return directions((0, 0), np.asarray(lift_yx, np.float32) - np.asarray(touch_yx, np.float32))


def contains(box: Sequence[float], point_yx: Sequence[float]) -> bool:
    """Whether the point lies in the box, edges included."""
    y, x, height, width = box
    return y <= point_yx[0] <= y + height and x <= point_yx[1] <= x + width


def distance(box: Sequence[float], point_yx: Sequence[float]) -> float:
    """The larger of the vertical and the horizontal distance from a point to a box, in screen fractions.

    `box` is (y, x, height, width). Negative inside the box, 0 on its edge.
    """
    y, x, height, width = box
    return max(y - point_yx[0], point_yx[0] - y - height, x - point_yx[1], point_yx[1] - x - width)


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


def nearest_box(boxes: Sequence[Sequence[float]], point_yx: Sequence[float]) -> int | None:
    """Index of the box nearest to the point; None if none meets the screen. See `nearest_boxes`."""
    if not boxes:
        return None
    found = int(nearest_boxes(np.array([point_yx], float), np.array(boxes, float), np.zeros(len(boxes), int))[0])
    return None if found < 0 else found


def nearest_boxes(points: np.ndarray, boxes: np.ndarray, screen: np.ndarray) -> np.ndarray:
    """The box nearest to the point of each of R screens: int (R,), -1 for a screen without one. Arguments and result as
    in `boxes_at`, with which it agrees where a box contains the point.

    A box has distance 0 to the points in it. Of equally near boxes, the smallest is meant, and of equally small ones
    the first. Boxes beside the screen are left out. So a finger can reach a place of the result where no smaller box
    lies (`place_of_box`).
    """
    index = np.flatnonzero(meets_screen(boxes))
    boxes, screen = boxes[index], screen[index]
    away = np.maximum(0.0, np.maximum(boxes[:, :2] - points[screen], points[screen] - (boxes[:, :2] + boxes[:, 2:])))
    order = np.lexsort((boxes[:, 2] * boxes[:, 3], (away * away).sum(axis=1), screen))
    found = np.full(len(points), -1)
    screens, first = np.unique(screen[order], return_index=True)
    found[screens] = index[order[first]]
    return found


def place_of_box(boxes: Sequence[Sequence[float]], index: int) -> tuple[float, float] | None:
    """A point (y, x) on the screen for which `box_at` returns `index`.

    The centre of what the screen shows of the box if that is such a point, otherwise the centre of the largest part
    between smaller boxes. If smaller boxes cover all of it, the centre. None if the box lies beside the screen.
    """
    values = np.array(boxes, float)
    if not meets_screen(values[index : index + 1])[0]:
        return None
    low, high = np.maximum(values[:, :2], 0), np.minimum(values[:, :2] + values[:, 2:], 1)
    centre = (low[index] + high[index]) / 2
    if box_at(boxes, centre) == index:
        return float(centre[0]), float(centre[1])
    area = values[:, 2] * values[:, 3]
    is_smaller = (area < area[index]) | ((area == area[index]) & (np.arange(len(area)) < index))
    over = is_smaller & ((low <= high[index]) & (high >= low[index])).all(axis=1)
    edges = [_edges(low[over, axis], high[over, axis], low[index, axis], high[index, axis]) for axis in (0, 1)]
    free = np.ones([len(axis) - 1 for axis in edges], bool)
    for start, end in zip(low[over], high[over], strict=True):
        rows, columns = (_between(axis, *ends) for axis, *ends in zip(edges, start, end, strict=True))
        free[rows, columns] = False
    middles = [(axis[:-1] + axis[1:]) / 2 for axis in edges]
    sides = np.minimum(np.diff(edges[0])[:, None], np.diff(edges[1])[None, :])
    y, x = np.unravel_index(np.where(free, sides, -1).argmax(), free.shape)
    place = (float(middles[0][y]), float(middles[1][x]))
    return place if box_at(boxes, place) == index else (float(centre[0]), float(centre[1]))


def _edges(low: np.ndarray, high: np.ndarray, first: float, last: float) -> np.ndarray:
    """The different edges between `first` and `last`, both included, ascending; at least two."""
    edges = np.unique(np.clip(np.concatenate([low, high, [first, last]]), first, last))
    return np.repeat(edges, 2) if len(edges) == 1 else edges


def _between(edges: np.ndarray, start: float, end: float) -> slice:
    """The intervals of `edges` between `start` and `end`; the only one of a box without an extent."""
    return slice(None) if edges[0] == edges[-1] else slice(*np.searchsorted(edges, (start, end)))


def meets_screen(boxes: np.ndarray) -> np.ndarray:
    """bool (P,): whether a part of each box, (P, 4), lies on the screen, edges included."""
    start, end = boxes[:, :2], boxes[:, :2] + boxes[:, 2:]
    return ((start <= end) & (start <= 1) & (end >= 0)).all(axis=1)


def _indices_within(corner: np.ndarray, size: np.ndarray, value: np.ndarray) -> np.ndarray:
    return np.flatnonzero((corner <= value) & (value <= corner + size))


def smart_resize(size: tuple[int, int], multiple: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """The (height, width) to which the image processor of Qwen2-VL resizes an image of `size` = (height, width).

    Source: `smart_resize` in transformers. Both sides are multiples of `multiple`, the aspect ratio is approximately
    kept, and the area is between `min_pixels` and `max_pixels`, unless a side of the reduced image would be shorter
    than `multiple`. Unlike the source, any aspect ratio is accepted.
    """
    height, width = size
    rounded = round(height / multiple) * multiple, round(width / multiple) * multiple
    if rounded[0] * rounded[1] > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        down = [max(multiple, math.floor(side / shrink / multiple) * multiple) for side in size]
        return down[0], down[1]
    if rounded[0] * rounded[1] < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        up = [math.ceil(side * grow / multiple) * multiple for side in size]
        return up[0], up[1]
    return rounded
