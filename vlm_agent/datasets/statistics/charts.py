"""Coordinates of charts for a template: histograms on a shared axis, heat maps as one SVG path per shade."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

WIDTH, HEIGHT = 300, 110
"""Size of a histogram's plot, in SVG units."""

_BARS = 36
_TICKS = 5
_SHADES = 12
_LAST_LABEL = 60
"""Width of the label of an overflowing last bar."""


@dataclass(frozen=True)
class Bar:
    """The number of values from `first` to `last`, or from `first` up. `x`, `width` and `height` in SVG units."""

    x: float
    width: float
    height: float
    first: int
    last: int | None
    count: int


@dataclass(frozen=True)
class Histogram:
    """`ticks`: (x, value) along the axis. `limit_x`: the x of the limit, None if it is not on the axis.
    `tallest_share`: the percentage of all values in the tallest bar."""

    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, int], ...]
    limit_x: float | None
    tallest_share: float


def histograms(values: Mapping[str, np.ndarray], limit: int | None = None) -> dict[str, Histogram]:
    """Histograms by name of non-negative integers, on one axis; each is scaled to its own tallest bar.

    The last bar counts all larger values, so that a few outliers do not compress the rest.
    """
    together = np.concatenate([np.zeros(0, np.int64), *values.values()])
    if not len(together):
        return {}
    end = float(np.quantile(together, 0.995)) + 1
    if limit is not None and limit < 2 * end:
        end = max(end, 1.05 * limit)
    step = _round_up(end / _BARS)
    count = math.ceil(end / step)
    return {name: _histogram(its_values, step, count, limit) for name, its_values in values.items() if len(its_values)}


def _histogram(values: np.ndarray, step: int, count: int, limit: int | None) -> Histogram:
    counts = np.bincount(np.minimum(values // step, count - 1), minlength=count)
    width, tallest = WIDTH / count, int(counts.max())
    overflows = int(values.max()) >= step * count
    bars = tuple(
        Bar(
            x=round(index * width, 2),
            width=round(0.88 * width, 2),
            height=round(HEIGHT * number / tallest, 2),
            first=index * step,
            last=None if overflows and index == count - 1 else (index + 1) * step - 1,
            count=number,
        )
        for index, number in enumerate(counts.tolist())
    )
    every = _round_up(step * count / _TICKS)
    # A bar of one value has its tick under its middle, a bar of several values under its left edge.
    shift = 0.44 * width if step == 1 else 0.0
    ticks = [(round(value / step * width + shift, 2), value) for value in range(0, step * count, every)]
    if overflows:
        ticks = [(x, value) for x, value in ticks if x < WIDTH - _LAST_LABEL]
    limit_x = None if limit is None or limit > step * count else round(limit / step * width, 2)
    return Histogram(bars, tuple(ticks), limit_x, 100 * tallest / len(values))


def shades(counts: np.ndarray) -> list[tuple[float, str]]:
    """A grid of counts, int64 (rows, columns), as (opacity, SVG path in cells) of the cells of each shade.

    Opacity is proportional to the square root of a cell's count, so that cells with few taps remain visible.
    """
    if not counts.any():
        return []
    levels = np.ceil(np.sqrt(counts / counts.max()) * _SHADES).astype(int)
    return [(round(level / _SHADES, 2), _cells(levels == level)) for level in range(1, _SHADES + 1)]


def _cells(chosen: np.ndarray) -> str:
    return "".join(f"M{x} {y}h1v1h-1z" for y, x in np.argwhere(chosen).tolist())


def _round_up(value: float) -> int:
    """The next whole number that is 1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(max(value, 1)))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value)
