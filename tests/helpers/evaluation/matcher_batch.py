"""Pairs of actions in the layout of the matcher's golden file, as arrays for the matcher."""

import numpy as np

POINTS = ("touch_1", "lift_1", "touch_2", "lift_2")
f32 = np.float32


def batch(pairs, pad_with=0.0, extra=0):
    """Keyword arguments of `actions_match` for a list of dicts in the golden file's layout."""
    counts = np.array([len(pair["boxes"]) for pair in pairs], int)
    boxes = np.full((len(pairs), counts.max(initial=0) + extra, 4), pad_with, f32)
    for row, pair in enumerate(pairs):
        boxes[row, : counts[row]] = np.asarray(pair["boxes"], f32).reshape(-1, 4)
    arrays = {key: np.array([pair[key] for pair in pairs], f32).reshape(-1, 2) for key in POINTS}
    types = {key: np.array([pair[key] for pair in pairs], int) for key in ("type_1", "type_2")}
    return {**arrays, **types, "boxes": boxes, "box_counts": counts}
