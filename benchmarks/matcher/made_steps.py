"""Random steps to score: actions in AITW's proportions, phone-like elements, answers of medium accuracy."""

import numpy as np

BOXES = 40
MIX = {"tap": 0.55, "swipe": 0.15, "type": 0.10, "other": 0.20}
SAME_KIND = 0.85
"""The probability that the agent answers with the expert's kind of action; otherwise it is drawn from `MIX`."""
ON_TARGET = 0.6
"""The probability that the agent's tap is near the expert's; otherwise it is on another element."""
_OTHERS = (5, 6, 7, 10, 11)


def make_arrays(steps: int, seed: int) -> dict[str, np.ndarray]:
    """Arguments of `actions_match`, float32: expert (1) and agent (2), with `BOXES` boxes per step."""
    rng = np.random.default_rng(seed)
    boxes = make_boxes(rng, steps * BOXES).reshape(steps, BOXES, 4)
    kind_1 = rng.choice(len(MIX), steps, p=list(MIX.values()))
    kind_2 = np.where(rng.random(steps) < SAME_KIND, kind_1, rng.choice(len(MIX), steps, p=list(MIX.values())))
    touch_1, touch_2 = _on_elements(rng, boxes), _on_elements(rng, boxes)
    on_target = rng.random(steps) < ON_TARGET
    touch_2[on_target] = np.clip(touch_1[on_target] + rng.normal(0, 0.01, (on_target.sum(), 2)), 0, 1)
    first, second = _actions(rng, kind_1, touch_1), _actions(rng, kind_2, touch_2)
    same_type = on_target & (kind_1 == kind_2) & (kind_1 == 3)
    second["type_2"] = np.where(same_type, first["type"], second.pop("type"))
    return {
        **{f"{name}_1": array for name, array in first.items()},
        **{name if name == "type_2" else f"{name}_2": array for name, array in second.items()},
        "boxes": boxes,
        "box_counts": np.full(steps, BOXES),
    }


def make_hard_arrays(steps: int, seed: int) -> dict[str, np.ndarray]:
    """Only pairs of taps on different elements, so every verdict depends on the boxes."""
    rng = np.random.default_rng(seed)
    boxes = make_boxes(rng, steps * BOXES).reshape(steps, BOXES, 4)
    points = {name: _on_elements(rng, boxes) for name in ("touch_1", "touch_2")}
    taps = {"type_1": np.full(steps, 4), "type_2": np.full(steps, 4), "box_counts": np.full(steps, BOXES)}
    return {**points, "lift_1": points["touch_1"], "lift_2": points["touch_2"], **taps, "boxes": boxes}


def make_boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    """Float32 (count, 4), (y, x, height, width): lines of text, icons, and 2 % pictures of a third of the screen."""
    wide = rng.random(count) < 0.7
    height = np.where(wide, rng.uniform(0.012, 0.035, count), rng.uniform(0.02, 0.05, count))
    width = np.where(wide, rng.uniform(0.08, 0.6, count), rng.uniform(0.05, 0.11, count))
    picture = rng.random(count) < 0.02
    height, width = np.where(picture, 0.3, height), np.where(picture, 0.9, width)
    corner = rng.random((count, 2)) * np.stack([1 - height, 1 - width], axis=1)
    return np.column_stack([corner, height, width]).astype(np.float32)


def _on_elements(rng: np.random.Generator, boxes: np.ndarray) -> np.ndarray:
    """A point on one of each screen's elements, float32 (N, 2)."""
    chosen = boxes[np.arange(len(boxes)), rng.integers(0, boxes.shape[1], len(boxes))]
    return (chosen[:, :2] + chosen[:, 2:] * rng.uniform(0.2, 0.8, (len(boxes), 2))).astype(np.float32)


def _actions(rng: np.random.Generator, kind: np.ndarray, touch: np.ndarray) -> dict[str, np.ndarray]:
    touch, lift = touch.copy(), touch.copy()
    swipe = kind == 1
    lift[swipe] = rng.random((swipe.sum(), 2))
    touch[kind >= 2], lift[kind >= 2] = -1, -1
    types = np.select([kind < 2, kind == 2], [4, 3], rng.choice(_OTHERS, len(kind)))
    return {"touch": touch, "lift": lift, "type": types}
