"""How published scorers of AndroidControl and GUI-Odyssey compare points.

Shards hold points as float32, scorers read integers from the answer's text. Every rule therefore first recovers the
integers of the agent's language (`whole`).
"""

from collections.abc import Callable

import numpy as np

from vlm_agent.evaluation.scoring.steps import Boxes, StepTable
from vlm_agent.geometry import directions, smart_resize

GRID = 1000.0
"""Languages in thousandths of the screen."""

_HALF = 0.5 + 3e-4
"""Halves are rounded up, also those that float32 moved below."""

NEAREST = 5
"""Boxes around a point that ClawGUI, AgentCPM-GUI and GUIEvalKit consider."""

FIXED_SCREEN = np.array([2400.0, 1080.0])
"""The (height, width) that some scorers assume of every screen."""

Scale = Callable[[StepTable, np.ndarray], np.ndarray]
"""The size (height, width) of rows (R,) in units of the agent's language, broadcast to (R, 2)."""


def whole(points: np.ndarray, scale: np.ndarray | float) -> np.ndarray:
    """Fractions (R, 2) in whole units of `scale`, float64."""
    return np.floor(points * scale + _HALF)


def grid(table: StepTable, rows: np.ndarray) -> np.ndarray:
    return np.full((len(rows), 2), GRID)


def screen(table: StepTable, rows: np.ndarray) -> np.ndarray:
    return table.size[rows].astype(np.float64)


def resized(table: StepTable, rows: np.ndarray) -> np.ndarray:
    """The picture that Qwen2.5-VL sees at its defaults: multiples of 28, 3,136 to 12,845,056 pixels."""
    sizes, place = np.unique(table.size[rows], axis=0, return_inverse=True)
    fitted = [smart_resize((int(height), int(width)), 28, 3136, 12_845_056) for height, width in sizes]
    return np.array(fitted, np.float64).reshape(-1, 2)[place.reshape(-1)]


def both_on_grid(table: StepTable, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gold and the predicted points in whole thousandths."""
    gold, predicted = (whole(end[rows], GRID) for end in (table.gold.touch, table.predicted.touch))
    return gold, predicted


def gold_pixels(table: StepTable, rows: np.ndarray) -> np.ndarray:
    """Gold points in pixels of the screen, as AndroidControl stores them."""
    return whole(table.gold.touch[rows], screen(table, rows))


def distance(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    dy, dx = (first - second).T
    return np.sqrt(dx**2 + dy**2)


def in_fixed_pixels(thousandths: np.ndarray) -> np.ndarray:
    """Whole pixels of `FIXED_SCREEN`, rounded down."""
    return np.floor(thousandths * FIXED_SCREEN / GRID + 1e-9)


def corners(boxes: Boxes, table: StepTable, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The boxes of `rows` in whole pixels of the screen as (top, left, bottom, right), (P, 4), and the position in
    `rows` of each, (P,)."""
    values, place = boxes.listed(rows)
    sizes = screen(table, rows)[place]
    return np.hstack([whole(values[:, :2], sizes), whole(values[:, :2] + values[:, 2:], sizes)]), place


def holds(edges: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Whether boxes (P, 4) as (top, left, bottom, right) hold points (P, 2), edges included."""
    return np.asarray(((edges[:, :2] <= points) & (points <= edges[:, 2:])).all(axis=1))


def some(rows: int, place: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Whether one of the boxes of each row holds, bool (rows,)."""
    found = np.zeros(rows, bool)
    found[place[held]] = True
    return found


def nearest(edges: np.ndarray, place: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Indices of the `NEAREST` boxes of each row by the distance of their centres to its point, (R, 2)."""
    centre = (edges[:, :2] + edges[:, 2:]) / 2
    order = np.lexsort((distance(centre, points[place]), place))
    first = np.searchsorted(place[order], place[order])
    return order[np.arange(len(order)) - first < NEAREST]


def finger(scale: Scale) -> Callable[[StepTable, np.ndarray], np.ndarray]:
    """A rule for swipes: the same direction, of two equal axes the vertical one."""

    def rule(table: StepTable, rows: np.ndarray) -> np.ndarray:
        units = scale(table, rows)
        touch, lift = (whole(end[rows], units) / units for end in (table.predicted.touch, table.predicted.lift))
        return directions(table.gold.touch[rows], table.gold.lift[rows]) == directions(touch, lift)

    return rule


same_direction = finger(grid)
