"""Widgets as the map of centres that the detector learns: the inverse of `vlm_agent.screens.widgets.tiny.decode`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vlm_agent.episodes import WIDGET_KINDS, Widget
from vlm_agent.screens.widgets.tiny import SIZE_UNIT, STRIDE, Size

_SPREAD, _LEAST_SPREAD, _MOST_SPREAD = 1 / 12, 0.5, 3.0
"""Standard deviation of a centre on the map: a share of the box's side, and its limits in cells."""

_NEAR = 0.6
"""Cells where the centre's Gaussian exceeds it also learn the box, because the highest cell may be a neighbour."""


@dataclass(frozen=True)
class Targets:
    """What the map of one picture should be.

    `heat`: float32 (kinds, rows, columns), 1 at centres. `cells`: int64 (N, 3), (kind, row, column) of the cells that
    learn a box; `boxes`: float32 (N, 4), displacement y and x and log sides there. `states`: int64 (M, 2), (row,
    column) of widgets with a state, and `is_on`: float32 (M,).
    """

    heat: np.ndarray
    cells: np.ndarray
    boxes: np.ndarray
    states: np.ndarray
    is_on: np.ndarray


def targets(widgets: Sequence[Widget], size: Size, grid: Size) -> Targets:
    """Targets of a picture of `size` pixels at the network's scale, on a map of `grid` (rows, columns)."""
    heat = np.zeros((len(WIDGET_KINDS), *grid), np.float32)
    learned: dict[tuple[int, int, int], tuple[float, np.ndarray]] = {}
    states: dict[tuple[int, int], float] = {}
    for widget in widgets:
        kind = WIDGET_KINDS.index(widget.kind)
        y, x, high, wide = np.array(widget.box) * (size[0], size[1], size[0], size[1])
        centre = np.array([y + high / 2, x + wide / 2]) / STRIDE - 0.5
        row, column = (int(np.clip(round(at), 0, most - 1)) for at, most in zip(centre, grid, strict=True))
        sides = np.log(np.maximum((high, wide), 1.0) / SIZE_UNIT)
        near = _gaussian((row, column), np.array([high, wide]) / STRIDE, grid)
        rows, columns = near[1]
        heat[kind, rows, columns] = np.maximum(heat[kind, rows, columns], near[0])
        heat[kind, row, column] = 1.0
        for down, right in zip(*np.nonzero(near[0] >= _NEAR), strict=True):
            cell = (kind, rows.start + int(down), columns.start + int(right))
            weight = float(near[0][down, right])
            if cell not in learned or learned[cell][0] < weight:
                learned[cell] = (weight, np.array([*(centre - cell[1:]), *sides], np.float32))
        if widget.on is not None:
            states[row, column] = float(widget.on)
    return Targets(
        heat,
        np.array(list(learned), np.int64).reshape(-1, 3),
        np.array([box for _, box in learned.values()], np.float32).reshape(-1, 4),
        np.array(list(states), np.int64).reshape(-1, 2),
        np.array(list(states.values()), np.float32),
    )


def _gaussian(centre: Size, sides: np.ndarray, grid: Size) -> tuple[np.ndarray, tuple[slice, slice]]:
    """The Gaussian around a cell, and the part of the map that it covers."""
    spreads = np.clip(sides * _SPREAD, _LEAST_SPREAD, _MOST_SPREAD)
    profiles, parts = [], []
    for at, spread, most in zip(centre, spreads, grid, strict=True):
        part = slice(max(0, at - int(3 * spread)), min(most, at + int(3 * spread) + 1))
        profiles.append(np.exp(-0.5 * ((np.arange(part.start, part.stop) - at) / spread) ** 2))
        parts.append(part)
    return np.outer(*profiles).astype(np.float32), (parts[0], parts[1])
