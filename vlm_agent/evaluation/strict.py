"""The strict verdict: the same element, the same text, the same direction.

The official AITW matcher forgives neighbours (boxes 2.4 times their size, any tap within 0.14) and never compares typed
text, so that a policy which does not look at the screen can score well. This one is reported beside it. It is ours.
"""

import numpy as np

from vlm_agent.episodes import TAP_DISTANCE, Action, ActionKind, UiElement, distance, element_at


def strictly_match(gold: Action, predicted: Action | None, elements: tuple[UiElement, ...]) -> bool:
    """Whether `predicted` does what `gold` does on the screen with these `elements`; None (no action) never does.

    Taps match where their touches have the same smallest element under them; where the gold tap is on no element, the
    predicted one must be on none too and at most `TAP_DISTANCE` away. Typed text matches exactly, a swipe in its
    direction, every other action in its kind.
    """
    if predicted is None or predicted.name != gold.name:
        return False
    if gold.is_tap:
        return _same_target(gold.touch_yx, predicted.touch_yx, elements)
    if gold.kind is ActionKind.TYPE:
        return predicted.text == gold.text
    return predicted.direction == gold.direction


def _same_target(gold_yx, predicted_yx, elements) -> bool:
    target = element_at(elements, gold_yx)
    if element_at(elements, predicted_yx) is not target:
        return False
    return target is not None or distance(gold_yx, predicted_yx) <= TAP_DISTANCE


def taps_match_strictly(gold_yx: np.ndarray, predicted_yx: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """`strictly_match` for one screen and many taps: bool (P,).

    `gold_yx` is the one (2,) gold touch, `predicted_yx` the (P, 2) touches to judge, `boxes` the screen's (M, 4)
    elements as (y, x, height, width); all float64.
    """
    target, *found = _smallest_box(np.vstack([gold_yx[None], predicted_yx]), boxes)
    found = np.asarray(found, int)
    if target >= 0:
        return found == target
    apart = predicted_yx - gold_yx
    return (found == -1) & (np.hypot(apart[:, 0], apart[:, 1]) <= TAP_DISTANCE)


def _smallest_box(points: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Index of the smallest box that holds each point (P,), -1 where none does; the first of equally small ones."""
    if not len(boxes):
        return np.full(len(points), -1)
    corner, size = boxes[:, :2], boxes[:, 2:]
    points = points[:, None]
    held = ((corner <= points) & (points <= corner + size)).all(axis=2)
    area = np.where(held, size[:, 0] * size[:, 1], np.inf)
    return np.where(held.any(axis=1), area.argmin(axis=1), -1)
