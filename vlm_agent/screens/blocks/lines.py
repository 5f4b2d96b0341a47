"""The border lines of a screen and their rectangles: VisionTasker's algorithm 1 (section 4.3.3 and appendix B)."""

from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np

SHORTER_SIDE, PIXELS = 600, 12_000_000
"""Larger pictures are scaled down first, until their shorter side and their number of pixels are at most these."""

SMALLEST = 8
"""Pictures with a smaller side, in pixels, have no lines."""

COLOURS, SHARE = 8, 0.02
"""At most so many predominant colours; each has at least this share of the pixels."""

TOLERANCE = 6
"""Levels of a channel. A pixel has a predominant colour if no channel differs by more."""

STEP = 4
"""Levels of a channel that are counted as one."""

SHORTEST = 0.03
"""Length of the shortest segment that is used, in widths of the picture."""

SLOPE = 0.02
"""Largest slope of a horizontal or vertical segment."""

LIKELY = 0.5
"""Two segments are one line if the probability that they continue each other is at least this."""

CONTRAST = 4.0
"""Levels of a channel by which the colour must change across a line. A gradient changes by less."""


@dataclass(frozen=True, slots=True)
class Line:
    """A horizontal line at y = `at` from x = `start` to `end`, or a vertical one with x and y exchanged."""

    at: float
    start: float
    end: float

    @property
    def length(self) -> float:
        return self.end - self.start


def find_lines(pixels: np.ndarray) -> tuple[list[Line], list[Line]]:
    """(horizontal, vertical) border lines of `pixels`, uint8 (height, width, 3), each ordered by `at`."""
    height, width = pixels.shape[:2]
    if min(height, width) < SMALLEST:
        return [], []
    scale = max(1.0, min(height, width) / SHORTER_SIDE, (height * width / PIXELS) ** 0.5)
    if scale > 1:
        size = (max(1, round(width / scale)), max(1, round(height / scale)))
        pixels = cv2.resize(np.ascontiguousarray(pixels), size, interpolation=cv2.INTER_AREA)
    # Connected pixels whose gradients have one direction (LSD): float64 (N, 4), x and y of both ends.
    found = cv2.createLineSegmentDetector().detect(quantise(pixels))[0]
    segments = np.zeros((0, 4)) if found is None else np.asarray(found, np.float64).reshape(-1, 4)
    across, along = np.abs(segments[:, 2:] - segments[:, :2]).T
    shortest = max(6.0, SHORTEST * pixels.shape[1])
    flat = segments[(along <= SLOPE * across) & (across >= shortest)]
    upright = segments[(across <= SLOPE * along) & (along >= shortest)]
    turned = np.ascontiguousarray(pixels.transpose(1, 0, 2))
    return (_scaled(_lines(flat, pixels), scale), _scaled(_lines(upright[:, [1, 0, 3, 2]], turned), scale))


def quantise(pixels: np.ndarray) -> np.ndarray:
    """The picture in its predominant colours: uint8 (height, width), grey levels far apart, a level a colour.

    Darkest is everything that has none of these colours: pictures, letters, thin lines.
    """
    colours = predominant_colours(pixels)
    grey = np.zeros(pixels.shape[:2], np.uint8)
    nearest = np.full(pixels.shape[:2], TOLERANCE + 1, np.int16)
    for number, colour in enumerate(colours, 1):
        distance = np.abs(pixels.astype(np.int16) - colour).max(2)
        is_nearer = distance < nearest
        nearest[is_nearer] = distance[is_nearer]
        grey[is_nearer] = round(255 * number / len(colours))
    return grey


def predominant_colours(pixels: np.ndarray) -> np.ndarray:
    """int16 (N, 3): the commonest colours, from dark to bright, each unlike the others. N is at most `COLOURS`."""
    flat = pixels.reshape(-1, 3)
    coarse = flat.astype(np.int32) // STEP
    bins = 256 // STEP
    keys = (coarse[:, 0] * bins + coarse[:, 1]) * bins + coarse[:, 2]
    counts = np.bincount(keys, minlength=bins**3)
    commonest = np.argsort(-counts, kind="stable")[: 4 * COLOURS]
    chosen: list[np.ndarray] = []
    for key in commonest:
        if counts[key] < SHARE * len(flat) or len(chosen) == COLOURS:
            break
        colour = np.median(flat[keys == key], axis=0).astype(np.int16)
        if all(np.abs(colour - other).max() > CONTRAST for other in chosen):
            chosen.append(colour)
    chosen.sort(key=lambda colour: (int(colour.sum()), *map(int, colour)))
    return np.array(chosen, np.int16).reshape(-1, 3)


def _lines(segments: np.ndarray, pixels: np.ndarray) -> list[Line]:
    """Horizontal segments joined into lines, those kept whose colour changes across them."""
    lines = [Line((y1 + y2) / 2, min(x1, x2), max(x1, x2)) for x1, y1, x2, y2 in segments.tolist()]
    lines.sort(key=lambda line: (line.at, line.start, line.end))
    reach = max(1.5, 0.003 * min(pixels.shape[:2]))
    while True:
        joined = _join(lines, reach)
        if len(joined) == len(lines):
            return [line for line in lines if _contrast(line, pixels) >= CONTRAST]
        lines = joined


def probability(across: np.ndarray, gap: np.ndarray, shorter: np.ndarray, reach: float) -> np.ndarray:
    """That two parallel segments are parts of one line, in [0, 1], for arrays of pairs; all in pixels.

    It falls with the distance `across` (normal, standard deviation `reach`) and with the `gap` between their ends
    (exponential, in half-lengths of the `shorter` one). Segments that are not parallel are left out before.
    """
    return np.exp(-((across / reach) ** 2) / 2 - gap / (0.5 * shorter))


def _join(lines: list[Line], reach: float) -> list[Line]:
    """One round: each line takes in all others that probably continue it. `lines` are ordered by `at`."""
    at, start, end = np.array([(line.at, line.start, line.end) for line in lines]).reshape(-1, 3).T
    is_free = np.ones(len(lines), bool)
    result = []
    for number in range(len(lines)):
        if not is_free[number]:
            continue
        low, high = np.searchsorted(at, [at[number] - 2 * reach, at[number] + 2 * reach])
        near = np.arange(low, high)
        near = near[is_free[low:high] & (near != number)]
        gap = np.maximum(0, np.maximum(start[near] - end[number], start[number] - end[near]))
        shorter = np.minimum(end[near] - start[near], end[number] - start[number])
        likely = probability(at[near] - at[number], gap, shorter, reach) >= LIKELY
        members = np.append(near[likely], number)
        is_free[members] = False
        length = end[members] - start[members]
        middle = float((at[members] * length).sum() / length.sum())
        result.append(Line(middle, float(start[members].min()), float(end[members].max())))
    return sorted(result, key=lambda line: (line.at, line.start, line.end))


def _contrast(line: Line, pixels: np.ndarray) -> float:
    """Levels of a channel by which the colour changes within 3 rows around a horizontal line: median over it."""
    row, first, last = round(line.at), max(0, round(line.start)), round(line.end)
    rows = pixels[max(0, row - 3) : row + 4, first:last].astype(np.int16)
    if rows.size == 0:
        return 0.0
    return float(np.median((rows.max(0) - rows.min(0)).max(1)))


def _scaled(lines: list[Line], scale: float) -> list[Line]:
    return [Line(line.at * scale, line.start * scale, line.end * scale) for line in lines]


Rectangle = tuple[float, float, float, float]
"""(top, left, bottom, right) in pixels."""

NEARLY = 0.06
"""Lines nearly cross if they end at most this share of the picture's width apart: corners may be round."""

NARROWEST, FLATTEST = 0.3, 0.02
"""Smallest width and height of a rectangle, in widths and heights of the picture."""

COVERED = 0.7
"""Share of a rectangle's height that each of its sides covers."""

ROWS, LIKE = 3, 1.25
"""So many rectangles or more in a column, whose heights differ by at most this factor, are the rows of one list."""


def find_rectangles(flat: list[Line], upright: list[Line], size: tuple[int, int]) -> list[Rectangle]:
    """The rectangles that the lines make on a picture of `size` (height, width), smallest first.

    The edges of the picture are lines, too. Between two uprights only neighbouring horizontal lines make a
    rectangle, and the outermost two that both uprights reach. The rows of a list are one rectangle.
    """
    height, width = size
    near = NEARLY * width
    top, bottom = Line(0, 0, width), Line(height, 0, width)
    sides = [Line(0, 0, height), *upright, Line(width, 0, height)]
    levels = _apart([top, *flat, bottom], FLATTEST * height / 2)
    found: set[Rectangle] = set()
    for number, left in enumerate(sides):
        for right in sides[number + 1 :]:
            if right.at - left.at < NARROWEST * width:
                continue
            low, high = max(left.start, right.start) - near, min(left.end, right.end) + near
            across = [
                line
                for line in levels
                if low <= line.at <= high and line.start <= left.at + near and line.end >= right.at - near
            ]
            found.update(_between(across, left, right, FLATTEST * height))
    return sorted(found, key=lambda one: ((one[2] - one[0]) * (one[3] - one[1]), one))


def _apart(lines: list[Line], least: float) -> list[Line]:
    """`lines` without those that run beside a longer one: the two edges of a thick line count once."""
    kept: list[Line] = []
    for line in sorted(lines, key=lambda line: (-line.length, line.at)):
        if not any(
            abs(line.at - other.at) < least and line.start >= other.start - least and line.end <= other.end + least
            for other in kept
        ):
            kept.append(line)
    return sorted(kept, key=lambda line: line.at)


def _between(across: list[Line], left: Line, right: Line, flattest: float) -> list[Rectangle]:
    if len(across) < 2:
        return []
    rows = [(one.at, left.at, other.at, right.at) for one, other in pairwise(across) if other.at - one.at >= flattest]
    found = [*_lists(rows), (across[0].at, left.at, across[-1].at, right.at)]
    return [one for one in found if all(_covers(side, one[0], one[2]) for side in (left, right))]


def _covers(side: Line, top: float, bottom: float) -> bool:
    return min(side.end, bottom) - max(side.start, top) >= COVERED * (bottom - top)


def _lists(rows: list[Rectangle]) -> list[Rectangle]:
    """`rows` from top to bottom, where runs of like rows are one rectangle."""
    result: list[Rectangle] = []
    run: list[Rectangle] = []
    for row in [*rows, None]:
        heights = [one[2] - one[0] for one in (*run, row) if one is not None]
        if row is not None and (not run or (row[0] == run[-1][2] and max(heights) <= LIKE * min(heights))):
            run.append(row)
            continue
        if len(run) >= ROWS:
            result.append((run[0][0], run[0][1], run[-1][2], run[0][3]))
        else:
            result.extend(run)
        run = [] if row is None else [row]
    return result
