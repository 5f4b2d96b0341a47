"""Parts of a screen into blocks, and the title of a block (VisionTasker, sections 4.3.3 and 4.3.4)."""

from collections.abc import Sequence

import numpy as np

from vlm_agent.screens.blocks.lines import find_lines, find_rectangles
from vlm_agent.screens.seen import Block, Box, Part, area, centre, hull, reading_order, shared

BARS = ("status_bar", "navigation_bar")
"""Kinds of parts whose box is a block in itself."""

INSIDE = 0.7
"""A part belongs to the smallest rectangle that contains at least this share of it."""

SAME = 0.6
"""A rectangle that overlaps a part by this intersection over union is the part's own border."""

TITLE_AREA, TITLE_HEIGHTS, LEFT_AREA = 0.3, 4, 0.2
"""At most this share of the block and so many of its own heights are over a title; a left-justified one begins in this
share of the block's width."""

UNLIKE = 1.12
"""A title's height differs from that of a text below it in the same column by this factor."""

STATUS = 0.035
"""Parts whose centre is over this are the status bar's."""


def find_blocks(pixels: np.ndarray, parts: Sequence[Part]) -> tuple[Block, ...]:
    """Groups `parts` by the borders drawn on the screen; every part is in exactly one block.

    `pixels`: uint8 (height, width, 3). Blocks are ordered from top to bottom and from left to right, and so are the
    parts of each. Parts outside every border are blocks, too: those that no other block lies between are together.
    """
    height, width = pixels.shape[:2]
    if not parts:
        return ()
    parts = sorted(parts, key=lambda part: part.id)
    rectangles = [
        (top / height, left / width, (bottom - top) / height, (right - left) / width)
        for top, left, bottom, right in find_rectangles(*find_lines(pixels), (height, width))
    ]
    groups = _assign(parts, rectangles)
    # ordered by what is in them: a page without a border under the status bar begins at the top of the screen, too
    order = reading_order([hull(part.box for part in members) for _, members in groups])
    return tuple(_block(*groups[index]) for index in order)


def _is_inside(box: Box, other: Box) -> bool:
    """Whether `box` lies in `other` by `INSIDE` of its area; a box without an area by its corner."""
    if area(box) > 0:
        return shared(box, other) >= INSIDE * area(box)
    return other[0] <= box[0] <= other[0] + other[2] and other[1] <= box[1] <= other[1] + other[3]


def _is_border_of(box: Box, part: Part) -> bool:
    both = shared(box, part.box)
    return part.kind not in BARS and both > SAME * (area(box) + area(part.box) - both)


def _assign(parts: Sequence[Part], rectangles: Sequence[Box]) -> list[tuple[Box, list[Part]]]:
    """(box, parts) of every block, in no order."""
    boxes = [one for one in rectangles if not any(_is_border_of(one, part) for part in parts)]
    boxes.extend(part.box for part in parts if part.kind in BARS)
    boxes.sort(key=lambda box: (area(box), box))
    owners = [next((index for index, box in enumerate(boxes) if _is_inside(part.box, box)), -1) for part in parts]
    bars = {boxes.index(part.box) for part in parts if part.kind in BARS}
    while True:
        alone = {index for index in set(owners) - {-1} - bars if owners.count(index) == 1}
        if not alone:
            break
        owners = [
            next((larger for larger in range(owner + 1, len(boxes)) if _is_inside(part.box, boxes[larger])), -1)
            if owner in alone
            else owner
            for owner, part in zip(owners, parts, strict=True)
        ]
    members = {owner: [part for part, one in zip(parts, owners, strict=True) if one == owner] for owner in set(owners)}
    groups: list[tuple[Box, list[Part]]] = []
    for owner in sorted(members):
        others = [boxes[other] for other in members if other not in (-1, owner)]
        runs = _runs(members[owner], others)
        groups += [
            (hull(part.box for part in run) if owner == -1 or len(runs) > 1 else boxes[owner], run) for run in runs
        ]
    return groups


def _runs(parts: list[Part], others: list[Box]) -> list[list[Part]]:
    """`parts` in runs from top to bottom that none of the boxes `others` lies between."""
    runs: list[list[Part]] = []
    for part in sorted(parts, key=lambda part: (centre(part.box)[0], part.id)):
        if runs and not any(_lies_between(box, runs[-1], part) for box in others):
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def _lies_between(box: Box, above: Sequence[Part], below: Part) -> bool:
    """Whether `box` is under the parts `above`, over the part `below`, and in a column with each."""
    middle, around = centre(box)[0], hull(part.box for part in above)
    return centre(above[-1].box)[0] < middle < centre(below.box)[0] and all(
        min(box[1] + box[3], other[1] + other[3]) > max(box[1], other[1]) for other in (around, below.box)
    )


def _block(box: Box, parts: list[Part]) -> Block:
    members = [parts[index] for index in reading_order([part.box for part in parts])]
    return Block(box, tuple(part.id for part in members), title_of(box, members))


def title_of(box: Box, parts: Sequence[Part]) -> str:
    """The caption of a block: pure text at its top, left-justified or alone in its row, without an icon beside it.

    `parts` are the block's, in reading order; those of the status bar do not count. Empty if the first row is no such
    text, or if the text looks like the one below it, as the first line of a list does.
    """
    parts = [part for part in parts if centre(part.box)[0] > STATUS]
    if len(parts) < 2 or parts[0].kind != "text" or not parts[0].text:
        return ""
    first, rest = parts[0], parts[1:]
    row = [part for part in rest if _share_rows(first.box, part.box)]
    below = [part for part in rest if part not in row]
    above = first.box[0] - max(box[0], STATUS)
    if not below or len(row) > 1 or above > min(TITLE_HEIGHTS * first.box[2], TITLE_AREA * box[2]):
        return ""
    end = first.box[1] + first.box[3]
    # an icon left of the text, or less than 5 % of the screen's width to its right
    if any(part.kind != "text" and (part.box[1] < first.box[1] or part.box[1] - end < 0.05) for part in row):
        return ""
    is_left = first.box[1] <= box[1] + LEFT_AREA * box[3] and all(part.box[1] > first.box[1] for part in row)
    if row and not is_left:
        return ""
    return "" if _is_like(first, below[0]) else first.text


def _is_like(first: Part, second: Part) -> bool:
    """Whether two texts begin in one column with letters of one height."""
    low, high = sorted((first.box[2], second.box[2]))
    return second.kind == "text" and high < UNLIKE * low and abs(first.box[1] - second.box[1]) < 0.02


def _share_rows(first: Box, second: Box) -> bool:
    shared = min(first[0] + first[2], second[0] + second[2]) - max(first[0], second[0])
    return shared > 0.5 * min(first[2], second[2])
