"""The strict verdict on one step: the same element, the same text, the same direction.

The official AITW matcher forgives neighbours (boxes 2.4 times their size, any tap within 0.14) and never compares typed
text, so that a policy which does not look at the screen can score well. This one is reported beside it. It is ours.
`dialects.judge` gives the same verdicts on whole tables.
"""

import numpy as np

from vlm_agent.episodes import Action, ActionKind, UiElement, element_at
from vlm_agent.evaluation.elements import is_near, same_element


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
    return target is not None or is_near(predicted_yx[0] - gold_yx[0], predicted_yx[1] - gold_yx[1])


def taps_match_strictly(gold_yx: np.ndarray, predicted_yx: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """`strictly_match` for one screen and many taps: bool (P,).

    `gold_yx` is the one (2,) gold touch, `predicted_yx` the (P, 2) touches to judge, `boxes` the screen's (M, 4)
    elements as (y, x, height, width); all float64.
    """
    taps = len(predicted_yx)
    screen = np.repeat(np.arange(taps), len(boxes))
    return same_element(np.broadcast_to(gold_yx, (taps, 2)), predicted_yx, np.tile(boxes, (taps, 1)), screen)
