"""What AITW's records and AitZ's files have in common: the limits of a step, the checks of its parts, CoAT's keys.

Every function raises DatasetError, naming the source's own key.
"""

from collections.abc import Sequence

from vlm_agent.datasets import DatasetError
from vlm_agent.episodes import Action, ActionKind, CoatTexts, UiElement

MAX_SIDE = 16_383
MAX_PIXELS = 1 << 25
"""Screens beyond 16,383 pixels a side (the most that WebP can store) or 33.5 megapixels are refused: no phone has one,
damaged numbers do."""

MAX_TEXT_BYTES = 1 << 16
MAX_ELEMENTS = 1 << 12
"""Texts beyond 64 KiB and screens of more than 4,096 elements are refused, because memory must stay bounded."""

MAX_STEPS = 10_000
"""Longer episodes are refused: AITW's longest have some dozens of steps, damaged numbers have billions."""

COAT_KEYS = {
    "screen": "coat_screen_desc",
    "think": "coat_action_think",
    "action": "coat_action_desc",
    "result": "coat_action_result",
}
"""Field of `CoatTexts` → the key that AitZ gave it; a TFRecord of AITW that was enriched with the texts uses it too."""


def is_screen_size(height: int, width: int) -> bool:
    return 1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE and height * width <= MAX_PIXELS


def check_place(episode_id: str, step_id: int, episode_length: int) -> None:
    """Whether `step_id` is within the episode is not asked: that is a fault of the episode, not of this step."""
    if not (1 <= episode_length <= MAX_STEPS and 0 <= step_id < MAX_STEPS):
        raise DatasetError(f"step_id {step_id} of episode_length {episode_length} is not within 0 … {MAX_STEPS - 1}")
    if not episode_id:
        raise DatasetError("episode_id is empty")


def check_text(size: int, key: str) -> None:
    """`size` in bytes of UTF-8."""
    if size > MAX_TEXT_BYTES:
        raise DatasetError(f"{key} has {size} bytes, more than the {MAX_TEXT_BYTES} that are accepted")


def action_kind(number: int, key: str) -> ActionKind:
    try:
        return ActionKind(number)
    except ValueError:
        known = ", ".join(f"{kind.value} {kind.name}" for kind in ActionKind)
        raise DatasetError(f"{key} {number} is unknown; AITW has {known}") from None


def gesture(touch_yx: Sequence[float], lift_yx: Sequence[float], keys: tuple[str, str]) -> Action:
    """The dual point between two points (y, x); `keys` name them."""
    for point, key in zip((touch_yx, lift_yx), keys, strict=True):
        if len(point) != 2:
            raise DatasetError(f"{key} has {len(point)} values, expected 2 (y, x)")
        if not all(0.0 <= value <= 1.0 for value in point):
            raise DatasetError(f"{key} is {tuple(point)}; a gesture needs (y, x) within [0, 1]")
    return Action(ActionKind.DUAL_POINT, tuple(touch_yx), tuple(lift_yx))


def elements_of(boxes: Sequence[float], texts: Sequence[str], types: Sequence[str], key: str) -> tuple[UiElement, ...]:
    """`boxes` is flat, four numbers an element: y, x, height, width in screen fractions."""
    if not (len(boxes) == 4 * len(texts) == 4 * len(types)):
        raise DatasetError(
            f"{key}: {len(boxes)} positions, {len(texts)} texts and {len(types)} ui_types do not "
            "belong together (4 positions an element)"
        )
    if len(texts) > MAX_ELEMENTS:
        raise DatasetError(f"{key}: {len(texts)} elements, more than the {MAX_ELEMENTS} that are accepted")
    each = zip(*[iter(boxes)] * 4, strict=True)
    return tuple(UiElement(*element) for element in zip(each, texts, types, strict=True))


def coat_texts(texts: dict[str, str]) -> CoatTexts | None:
    """From those of the values of `COAT_KEYS` that the source has; None where it has none of them."""
    if not texts:
        return None
    return CoatTexts(**{name: texts[key] for name, key in COAT_KEYS.items() if key in texts})
