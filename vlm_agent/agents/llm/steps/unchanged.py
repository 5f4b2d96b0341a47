"""Whether an action left the screen unchanged, from the screens before and after it."""

import numpy as np

from vlm_agent.episodes import Screen

_STATUS_BAR = 20
"""The top 1/20 of a screen, the status bar with the clock, is ignored in comparisons of screens."""

_LEVELS = 24
"""Colour levels by which a pixel must differ to count as changed: a screenshot may be compressed."""


def is_same(first: Screen, second: Screen, changed_share: float = 0.0) -> bool:
    """Whether at most `changed_share` of the pixels below the status bar differ; with 0, whether they are equal.

    Without pixels, elements are compared.
    """
    if first.pixels is None or second.pixels is None:
        return first.pixels is second.pixels and first.elements == second.elements
    if first.pixels.shape != second.pixels.shape:
        return False
    top = len(first.pixels) // _STATUS_BAR
    before, after = first.pixels[top:], second.pixels[top:]
    if not changed_share:
        return np.array_equal(before, after)
    differs = np.abs(before.astype(np.int16) - after).max(axis=2, initial=0) > _LEVELS
    return bool(differs.sum() <= changed_share * differs.size)
