"""The strict rule for one step, step by step: what the dialect `strict` decides for whole tables."""

from vlm_agent.episodes import KINDS_WITH_TEXT, Action, UiElement, element_at, is_same_text
from vlm_agent.evaluation.scoring.strict import is_near


def strictly_match(gold: Action, predicted: Action | None, elements: tuple[UiElement, ...]) -> bool:
    """Whether `predicted` has the same effect as `gold` on the screen with these `elements`; None never matches.

    Taps, and likewise long presses, match if the same smallest element is under both touches. If the gold touch is
    outside every element, the predicted touch must be so too and at most `TAP_DISTANCE` away. Typed text, answers and
    names of apps match if they are equal in Unicode NFC, swipes if their directions are equal, other actions if their
    kinds are equal.
    """
    if predicted is None or predicted.name != gold.name:
        return False
    if gold.is_touch:
        return _same_target(gold.touch_yx, predicted.touch_yx, elements)
    if gold.kind in KINDS_WITH_TEXT:
        return is_same_text(predicted.text, gold.text)
    return predicted.direction == gold.direction


def _same_target(
    gold_yx: tuple[float, float], predicted_yx: tuple[float, float], elements: tuple[UiElement, ...]
) -> bool:
    target = element_at(elements, gold_yx)
    if element_at(elements, predicted_yx) is not target:
        return False
    return target is not None or is_near(predicted_yx[0] - gold_yx[0], predicted_yx[1] - gold_yx[1])
