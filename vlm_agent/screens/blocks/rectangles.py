"""Rectangles of horizontal and vertical lines that cross or nearly do (VisionTasker, section 4.3.3)."""

from itertools import pairwise

from vlm_agent.screens.blocks.lines import Line

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
