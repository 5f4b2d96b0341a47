"""The active tab: of a row of like parts the one whose colours differ most (VisionTasker, section 4.3.4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np

from vlm_agent.screens.blocks.lines import Line, find_lines
from vlm_agent.screens.seen import Box, Part, centre

FEWEST, MOST = 3, 8
"""Tabs of a row."""

EDGE, STATUS, NAVIGATION = 0.25, 0.03, 0.94
"""A row of tabs lies in the top or bottom quarter, but not over `STATUS`, where the status bar is. Three icons without
a text under `NAVIGATION` are the system's buttons."""

LIKE, FILLED = 1.9, 4.0
"""Heights of the tabs of a row differ by at most this factor; that of a filled one from that of a name alone."""

UNEVEN = 0.3
"""Largest standard deviation of the distances between neighbours, in mean distances."""

WIDEST = 0.45
"""A row spans at least this share of the width."""

HUES, GREYS = 12, 6
"""Bins of a colour distribution: of hue for pixels with a colour, of brightness for the others."""

COLOURED = 40
"""Saturation times value, in 1/255, from which a pixel has a hue."""

DIFFERENT, CLEAR = 0.15, 1.6
"""The active tab's distance to the most similar other tab: at least so much, and so many times that of any other."""

ALIKE = 0.25
"""Largest distance of any other tab to the most similar one, unless a line marks the active tab: a row of app icons,
each of its own colour, is no row of tabs."""

UNDERLINE, UNDERLINED = 1.7, 2.0
"""Heights of a tab's name that are searched for a line below it; how much such a line adds to the distance. The paper
looks at colours alone, but on a coloured bar only the line tells tabs apart."""


@dataclass(frozen=True, slots=True)
class _Found:
    part: Part
    distance: float
    row: tuple[Part, ...]


def active_tabs(pixels: np.ndarray, parts: Sequence[Part]) -> tuple[int, ...]:
    """Ids of the active tabs, of a row each, from top to bottom. `pixels`: uint8 (height, width, 3)."""
    rows = tab_rows(parts)
    if not rows:
        return ()
    bins = _colour_bins(pixels)
    found = [best for best in (_stands_out(pixels, bins, row) for row in rows) if best is not None]
    kept: list[_Found] = []
    for one in sorted(found, key=lambda one: (-one.distance, one.part.id)):
        if not any(_is_stacked(one.row, other.row) for other in kept):
            kept.append(one)
    kept.sort(key=lambda one: (one.part.box[0], one.part.id))
    return tuple(one.part.id for one in kept)


def tab_rows(parts: Sequence[Part]) -> list[tuple[Part, ...]]:
    """Rows of 3 to 8 parts of like height, evenly spread over the top or the bottom quarter, from left to right.

    Rows of a grid are not tabs. Names under icons are no second row of a grid.
    """
    rest = sorted((part for part in parts if _is_at_edge(part.box)), key=lambda part: (centre(part.box)[0], part.id))
    rows: list[tuple[Part, ...]] = []
    while rest:
        first = rest[0]
        row = [part for part in rest if _is_in_row(first, part)]
        rest = [part for part in rest if part not in row]
        row.sort(key=lambda part: (part.box[1], part.id))
        if FEWEST <= len(row) <= MOST and _is_even(row):
            rows.append(tuple(row))
    # A row whose parts are mostly single letters belongs to a keyboard.
    rows = [row for row in rows if 2 * sum(len(part.text) == 1 for part in row) <= len(row)]
    return [row for row in rows if not (_is_in_grid(row, parts) or _is_navigation(row))]


def _is_at_edge(box: Box) -> bool:
    middle = centre(box)[0]
    return (STATUS < middle < EDGE or middle > 1 - EDGE) and 0 < box[2] < EDGE / 2 and 0 < box[3] < 0.5


def _is_in_row(first: Part, part: Part) -> bool:
    """Whether two parts may be tabs of one row: a name alone, or a name in a button, which the active tab may be."""
    high, low = max(first.box[2], part.box[2]), min(first.box[2], part.box[2])
    if first.kind == part.kind:
        is_like = high <= LIKE * low
    else:
        is_like = (
            {first.kind, part.kind} == {"text", "button"} and bool(first.text and part.text) and high <= FILLED * low
        )
    return is_like and abs(centre(first.box)[0] - centre(part.box)[0]) < 0.35 * high


def _is_even(row: Sequence[Part]) -> bool:
    """Whether the centres, or the gaps between the parts, are evenly spread."""
    left = np.array([part.box[1] for part in row])
    right = left + [part.box[3] for part in row]
    if right[-1] - left[0] < WIDEST:
        return False
    steps, gaps = np.diff((left + right) / 2), left[1:] - right[:-1]
    return any(each.min() > 0 and each.std() <= UNEVEN * each.mean() for each in (steps, gaps))


def _is_in_grid(row: Sequence[Part], parts: Sequence[Part]) -> bool:
    """Whether a row of parts like these stands above or below in the same columns, all but one, within five heights."""
    tall = max(part.box[2] for part in row)
    step = (centre(row[-1].box)[1] - centre(row[0].box)[1]) / (len(row) - 1)
    places = [
        (column, centre(other.box)[0])
        for column, one in enumerate(row)
        for other in parts
        if other.kind == one.kind
        and abs(centre(other.box)[1] - centre(one.box)[1]) < 0.08 * step
        and tall < abs(centre(other.box)[0] - centre(one.box)[0]) < 5 * tall
        and max(other.box[2], one.box[2]) <= LIKE * min(other.box[2], one.box[2])
    ]
    return any(
        len({column for column, y in places if abs(y - level) < 0.4 * tall}) >= max(2, len(row) - 1)
        for _, level in places
    )


def _is_navigation(row: Sequence[Part]) -> bool:
    """Whether these are the system's back, home and recents: three small icons without a text at the very bottom."""
    return len(row) == 3 and all(
        not part.text and part.box[2] < 0.03 and centre(part.box)[0] > NAVIGATION for part in row
    )


def _is_stacked(row: Sequence[Part], other: Sequence[Part]) -> bool:
    """Whether two rows are icons and their names."""
    tall = max(part.box[2] for part in (*row, *other))
    return abs(centre(row[0].box)[0] - centre(other[0].box)[0]) < 2.5 * tall


def _stands_out(pixels: np.ndarray, bins: np.ndarray, row: tuple[Part, ...]) -> _Found | None:
    cells = _cells(row)
    ink, around = zip(
        *(_distributions(bins, cell, part.box) for cell, part in zip(cells, row, strict=True)), strict=True
    )
    underlined = _underlined(pixels, cells) if all(part.text for part in row) else [False] * len(row)
    count = range(len(row))
    distances = np.array(
        [
            [
                max(_distance(ink[one], ink[two]), _distance(around[one], around[two]))
                + UNDERLINED * (underlined[one] != underlined[two])
                for two in count
            ]
            for one in count
        ]
    )
    np.fill_diagonal(distances, np.inf)
    nearest = distances.min(1)
    best, second = np.argsort(-nearest, kind="stable")[:2]
    if nearest[best] < max(DIFFERENT, CLEAR * nearest[second]):
        return None
    if nearest[second] > ALIKE and sum(underlined) != 1:
        return None
    return _Found(row[best], float(nearest[best]), row)


def _cells(row: Sequence[Part]) -> list[Box]:
    """A box a part: as wide as the narrowest distance between neighbours, with half a height above and below."""
    middles = [centre(part.box)[1] for part in row]
    wide = min(second - first for first, second in pairwise(middles))
    tall = max(part.box[2] for part in row)
    top, bottom = min(part.box[0] for part in row), max(part.box[0] + part.box[2] for part in row)
    return [(top - tall / 2, middle - wide / 2, bottom - top + tall, wide) for middle in middles]


def _underlined(pixels: np.ndarray, cells: Sequence[Box]) -> list[bool]:
    """For each cell whether a line runs through its lower end or shortly below, inside its width.

    What is under a line across the screen is no longer the row's.
    """
    width = pixels.shape[1]
    tall = cells[0][2] / 2
    bottom = cells[0][0] + cells[0][2]
    rows, _ = _crop(pixels.shape, (bottom - 0.4 * tall, 0.0, UNDERLINE * tall, 1.0))
    flat, _ = find_lines(pixels[rows])
    end = min((line.at for line in flat if line.length >= 0.8 * width), default=float("inf"))
    flat = [line for line in flat if line.at <= end]
    return [any(_is_under(line, cell, width) for line in flat) for cell in cells]


def _is_under(line: Line, cell: Box, width: int) -> bool:
    """Whether a line (pixels of a picture of `width`) is at least 15 % of a cell's width long and does not leave it."""
    left, wide = cell[1] * width, cell[3] * width
    slack = 0.03 * wide
    return line.length >= 0.15 * wide and left - slack <= line.start and line.end <= left + wide + slack


def _crop(shape: tuple[int, ...], box: Box) -> tuple[slice, slice]:
    height, width = shape[:2]
    top, bottom = max(0, round(box[0] * height)), min(height, round((box[0] + box[2]) * height))
    left, right = max(0, round(box[1] * width)), min(width, round((box[1] + box[3]) * width))
    return slice(top, max(top, bottom)), slice(left, max(left, right))


def _distributions(bins: np.ndarray, cell: Box, box: Box) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the colours, float64 (HUES + GREYS,), of a part's ink and of all that surrounds it in its cell.

    Ink is what is not the commonest colour in the part's box, so that the length of a name does not matter.
    """
    inside = _crop(bins.shape, box)
    ink = bins[inside].ravel()
    if ink.size:
        ink = ink[ink != np.bincount(ink).argmax()]
    rows, columns = _crop(bins.shape, cell)
    around = np.bincount(bins[rows, columns].ravel(), minlength=HUES + GREYS)
    both = (
        slice(max(rows.start, inside[0].start), min(rows.stop, inside[0].stop)),
        slice(max(columns.start, inside[1].start), min(columns.stop, inside[1].stop)),
    )
    around = around - np.bincount(bins[both].ravel(), minlength=HUES + GREYS)
    return _shares(np.bincount(ink, minlength=HUES + GREYS)), _shares(around)


def _colour_bins(pixels: np.ndarray) -> np.ndarray:
    """int64 (height, width): the bin of every pixel, hues first."""
    hue, saturation, value = cv2.split(cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2HSV))
    has_hue = saturation.astype(np.int64) * value > COLOURED * 255
    hues = hue.astype(np.int64) * HUES // 180
    return np.where(has_hue, hues, HUES + value.astype(np.int64) * GREYS // 256)


def _shares(counts: np.ndarray) -> np.ndarray:
    """Shares of the bins, each blurred into its neighbours; hues are a circle. Zeros where nothing is counted."""
    shares = counts / max(1, counts.sum())
    hues, greys = shares[:HUES], np.pad(shares[HUES:], 1, "edge")
    hues = np.roll(hues, 1) / 4 + hues / 2 + np.roll(hues, -1) / 4
    greys = greys[:-2] / 4 + greys[1:-1] / 2 + greys[2:] / 4
    return np.concatenate([hues, greys])


def _distance(first: np.ndarray, second: np.ndarray) -> float:
    """Half of the sum of the differences: 0 for equal distributions, at most 1."""
    return float(np.abs(first - second).sum() / 2)
