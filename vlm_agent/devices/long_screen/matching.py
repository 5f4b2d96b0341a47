"""How far a page has scrolled between two pictures of a screen, in rows, and which rows are fixed bars.

Pictures are uint8 (rows, columns, 3). They are compared as profiles: rows of mean grey values of blocks of columns,
without the margins where scroll bars are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_BLOCKS = 48
"""Columns of a profile."""

_MARGIN = 0.03
"""Fraction of the width at either side that is ignored: scroll bars move differently from the page."""

_NOISE = 12.0
"""Grey levels by which a fixed block may change: bars are compressed as JPEG, or the page shines through them."""

_BLUR = 1.0
"""Grey levels of difference that count as none."""

_SEVERITY, _WORST = 8.0, 2.0
"""A difference counts `_SEVERITY` times, but at most `_WORST` times the contrast. So a part of a regular list that
agrees with its neighbour for three quarters does not outweigh the correct offset, whose overlap may be short."""

_SAME, _QUALITY = 0.9, 0.5
"""The share of the content, by contrast, that must agree for a screen to count as unchanged, and for an offset to be
accepted. Carousels and texts that change by themselves make up the rest."""

_PURITY = 3
"""The exponent of the share of the content that agrees. In a list of tiles at equal distances, a wrong offset with a
long overlap agrees for the most part; the right one agrees nearly everywhere."""

_HARDLY = 0.05
"""Fractions of a row below this are noise."""


@dataclass(frozen=True)
class Scroll:
    """The content moved up by `rows`, between fixed bars of `top` and `bottom` rows.

    `exact`: the rows with a fraction. Phones scroll by fractions of a row and round the place of every element for
    itself, so one element may move by 149 rows and the next by 150.
    """

    rows: int
    top: int
    bottom: int
    exact: float = 0.0


def profile(pixels: np.ndarray) -> np.ndarray:
    """float32 (rows, blocks) of a picture: the mean grey values of up to `_BLOCKS` blocks of columns."""
    columns = pixels.shape[1]
    cut = int(columns * _MARGIN)
    grey = pixels[:, cut : columns - cut].mean(2, dtype=np.float32)
    starts = np.unique(np.linspace(0, grey.shape[1], min(_BLOCKS, grey.shape[1]), endpoint=False).astype(int))
    widths = np.diff([*starts, grey.shape[1]])
    return np.add.reduceat(grey, starts, axis=1) / widths.astype(np.float32)


def measure_scroll(first: np.ndarray, second: np.ndarray) -> Scroll | None:
    """How far the content moved up from one profile to the other of the same size; None if it cannot be measured.

    None: the screen changed in another way, or it moved so far that little of it is on both. A page of one colour has
    not moved, as far as can be seen.
    """
    top, bottom = _fixed_bars(first, second)
    body = slice(top, len(first) - bottom)
    whole = _agreement(first, second, _contrasts(first, second))[1]
    first, second = first[body], second[body]
    contrasts = _contrasts(first, second)
    if _agreement(first, second, contrasts)[1] >= _SAME:
        return Scroll(0, top, bottom)
    exact = _best_offset(first, second, contrasts)
    if exact is None:
        # What does not move within the body, such as a floating button or a side bar, counts against every offset.
        contrasts[:, (np.abs(first - second) <= _NOISE) & (contrasts.min(0) > _NOISE)] = np.nan
        exact = _best_offset(first, second, contrasts)
    if exact is None and whole >= _QUALITY:
        exact = 0.0  # only a part of the screen changed, by itself
    return None if exact is None else Scroll(round(exact), top, bottom, exact)


def _contrasts(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The distance of each block from the common grey of its column: blank blocks count for nothing."""
    pair = np.stack([first, second])
    return np.abs(pair - np.median(pair, (0, 1)))


def _best_offset(first: np.ndarray, second: np.ndarray, contrasts: np.ndarray) -> float | None:
    """The rows, at least 1, by which `first` must be moved up to agree best with `second`."""
    gains, best, best_share = [0.0], 0, 0.0
    for rows in range(1, len(first)):
        gain, share = _agreement(first[rows:], second[:-rows], (contrasts[0, rows:], contrasts[1, :-rows]))
        gains.append(max(0.0, gain) * share**_PURITY)
        if gains[-1] > gains[best]:
            best, best_share = rows, share
    if best_share < _QUALITY:
        return None
    return best + _fraction(*gains[best - 1 : best + 2]) if 1 < best < len(gains) - 1 else float(best)


def _fraction(before: float, gain: float, after: float) -> float:
    """Where the vertex of the parabola through three neighbouring gains is, -0.5 to 0.5; 0 if it is hardly off."""
    fraction = (after - before) / 2 / (2 * gain - before - after)
    return 0.0 if abs(fraction) < _HARDLY else fraction


def _agreement(
    first: np.ndarray, second: np.ndarray, contrasts: Sequence[np.ndarray] | np.ndarray
) -> tuple[float, float]:
    """(gain, share) of two overlapping profiles: the contrast that agrees minus the differences, and its share of all.

    Blocks with the contrast nan are not counted.
    """
    contrast = np.nan_to_num((contrasts[0] + contrasts[1]) / 2)
    cost = _SEVERITY * np.maximum(np.abs(first - second) - _BLUR, 0)
    gains = np.maximum(contrast - cost, -_WORST * contrast)
    total = float(contrast.sum())
    return float(gains.sum()), float(np.maximum(gains, 0).sum()) / total if total > 0 else 1.0


def _fixed_bars(first: np.ndarray, second: np.ndarray) -> tuple[int, int]:
    """(top, bottom): rows at the top and at the bottom that are equal in two profiles, up to noise; all rows: (0, 0).

    The status bar, the top 1/20, counts as equal if the rows below it are: its clock may have changed.
    """
    same = np.abs(first - second).max(1) <= _NOISE
    status = len(same) // 20
    if same[status : 2 * status].all():
        same[:status] = True
    changed = np.flatnonzero(~same)
    return (0, 0) if not len(changed) else (int(changed[0]), int(len(same) - 1 - changed[-1]))
