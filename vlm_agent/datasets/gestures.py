"""Where people tap and which way they swipe, counted on a grid of screen shape."""

from dataclasses import dataclass

import numpy as np

from vlm_agent.datasets.columns import DIRECTIONS, Columns

GRID = (60, 30)
"""(rows, columns) of a heat map: cells of a 2:1 phone screen are about square."""


@dataclass(frozen=True)
class Gestures:
    """`taps`: int64 `GRID`, how many taps fell into each cell. `swipes`: how many went in each of `DIRECTIONS`."""

    taps: np.ndarray
    swipes: dict[str, int]


def count_gestures(columns: Columns) -> dict[str, Gestures]:
    """The gestures of each subset that has episodes."""
    taps, swipes = columns.steps_that("tap"), columns.steps_that("swipe")
    found = {}
    for subset in columns.subsets:
        here = columns.steps_of(subset)
        directions = np.bincount(columns.direction[here & swipes], minlength=len(DIRECTIONS))
        found[subset] = Gestures(
            heat_map(columns.touch_yx[here & taps]), dict(zip(DIRECTIONS, directions.tolist(), strict=True))
        )
    return found


def heat_map(points_yx: np.ndarray) -> np.ndarray:
    """int64 `GRID`: how many of the points, float32 (N, 2) of (y, x) in [0, 1], fell into each cell."""
    cells = np.clip((points_yx * np.asarray(GRID, np.float32)).astype(np.int64), 0, np.asarray(GRID) - 1)
    flat = cells[:, 0] * GRID[1] + cells[:, 1]
    return np.bincount(flat, minlength=GRID[0] * GRID[1]).reshape(GRID)
