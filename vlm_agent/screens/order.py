"""The order in which a screen is read: from top to bottom, and within a row from left to right."""

from collections.abc import Sequence

from vlm_agent.screens.seen import Box

SAME_ROW = 0.5
"""Two boxes are in one row if they overlap vertically by this share of the smaller height."""

TALLER = 4.0
"""A box that is taller than another by this factor is a row of its own."""


def reading_order(boxes: Sequence[Box]) -> list[int]:
    """Indices of `boxes` in reading order. A row is what overlaps vertically with its topmost box."""
    rows: list[list[int]] = []
    for index in sorted(range(len(boxes)), key=lambda index: (*boxes[index], index)):
        row = next((row for row in reversed(rows) if _is_same_row(boxes[row[0]], boxes[index])), None)
        if row is None:
            rows.append([index])
        else:
            row.append(index)
    return [index for row in rows for index in sorted(row, key=lambda index: (boxes[index][1], boxes[index][0], index))]


def _is_same_row(first: Box, second: Box) -> bool:
    smaller, larger = sorted((first[2], second[2]))
    overlap = min(first[0] + first[2], second[0] + second[2]) - max(first[0], second[0])
    return larger <= TALLER * smaller and overlap >= SAME_ROW * smaller and overlap > 0
