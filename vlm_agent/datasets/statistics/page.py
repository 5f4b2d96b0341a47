"""Statistics as one self-contained HTML page, which loads nothing from elsewhere.

Goals are text from the data set, so they are escaped. Charts are histograms on a shared axis, and heat maps as one SVG
path per shade.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jinja2 import Environment

from vlm_agent.datasets.sources import SPLITS
from vlm_agent.datasets.statistics.leakage import HELD_OUT, TRAIN
from vlm_agent.datasets.statistics.summary import Statistics, TokenBudget, spread
from vlm_agent.files import atomic_write
from vlm_agent.files.pages import page_environment

_TEMPLATE = "statistics.html.jinja"
_COUNTED = ("steps_read", "steps_written", "steps_quarantined", "steps_left_out", "episodes_written", "points_moved")
_SHOWN_SIZES = 12
WIDTH, HEIGHT = 300, 110
"""Size of a histogram's plot, in SVG units."""

_BARS = 36
_TICKS = 5
_SHADES = 12
_LAST_LABEL = 60
"""Width of the label of an overflowing last bar."""

_COMPASS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


def write_page(
    output: Path, statistics: Statistics, manifest: Mapping, tokens: TokenBudget | None, facts: Mapping[str, str]
) -> None:
    """Writes the page to `output`, atomically.

    `facts` are shown in the heading: the shards and the selected part of them. The counts of the conversion are shown
    if the `manifest` contains them.
    """
    page = (
        _environment()
        .get_template(_TEMPLATE)
        .stream(
            facts=facts,
            conversion=conversion_counts(manifest),
            statistics=statistics,
            rows=[(subset, subset) for subset in statistics.subsets] + [("all", None)],
            splits=SPLITS,
            held_out=HELD_OUT,
            train=TRAIN,
            actions=statistics.action_names,
            plot=(WIDTH, HEIGHT),
            lengths=histograms({subset: statistics.steps_of_episodes(subset) for subset in statistics.subsets}),
            typed=histograms(statistics.typed),
            heat_maps={subset: shades(gestures.taps) for subset, gestures in statistics.gestures.items()},
            swipes={subset: _arrows(gestures.swipes) for subset, gestures in statistics.gestures.items()},
            sizes=statistics.screen_sizes.most_common(_SHOWN_SIZES),
            tokens=tokens,
            token_charts=None if tokens is None else histograms(tokens.counts, tokens.budget),
        )
    )
    with atomic_write(Path(output)) as part:
        page.dump(str(part), encoding="utf-8")


def conversion_counts(manifest: Mapping) -> dict[str, int]:
    """The counts of the conversion that the manifest has, in total or as the sum over its files."""
    files = manifest["files"]
    counts = {}
    for name in _COUNTED:
        if name in manifest:
            counts[name] = manifest[name]
        elif files and all(name in file for file in files):
            counts[name] = sum(file[name] for file in files)
    return counts | {"files": len(files)}


def _arrows(swipes: Mapping[str, int]) -> list[dict]:
    """For each direction, its share of the swipes in percent, and an arrow (dx, dy); the longest has length 1."""
    total = sum(swipes.values())
    if not total:
        return []
    shares = {direction: count / total for direction, count in swipes.items()}
    longest = max(shares.values())
    return [
        {"direction": direction, "share": 100 * share, "dx": dx * share / longest, "dy": dy * share / longest}
        for direction, share in shares.items()
        for dx, dy in [_COMPASS[direction]]
    ]


def _environment() -> Environment:
    environment = page_environment(Path(__file__).parent)
    environment.filters["number"] = lambda number: f"{number:,}"
    environment.filters["one"] = lambda number: f"{number:,.1f}"
    environment.filters["percent"] = lambda part, total: f"{100 * part / total:.1f}" if total else "–"
    environment.filters["spread"] = spread
    return environment


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
    return [
        (round(level / _SHADES, 2), "".join(f"M{x} {y}h1v1h-1z" for y, x in np.argwhere(levels == level).tolist()))
        for level in range(1, _SHADES + 1)
    ]


def _round_up(value: float) -> int:
    """The next whole number that is 1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(max(value, 1)))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value)
