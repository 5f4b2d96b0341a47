"""Stitches pictures of a page, each scrolled a little further than the one before, into one tall picture.

stitched = stitch([screen, next_screen, last_screen])
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from vlm_agent.devices.errors import DeviceError
from vlm_agent.devices.long_screen.matching import Scroll, measure_scroll, profile


@dataclass(frozen=True, eq=False)
class Stitched:
    """A tall picture.

    `pixels`: uint8 (height, width, 3). `offsets`: for each picture the row of `pixels` that shows its first row of
    content. `starts`: for each picture the first row that is taken from it. `bars`: rows of the fixed bars at the top
    and at the bottom, which occur once in `pixels`.
    """

    pixels: np.ndarray
    offsets: tuple[int, ...]
    starts: tuple[int, ...]
    bars: tuple[int, int]

    def source(self, row: float) -> int:
        """The number of the picture from which this row is taken."""
        return int(np.searchsorted(self.starts, row, side="right")) - 1


def stitch(pictures: Sequence[np.ndarray]) -> Stitched:
    """Pictures are uint8 (height, width, 3), all of one size, in the order of scrolling.

    A picture that shows the same rows as the one before adds none. Raises DeviceError for no picture, for pictures of
    different sizes or of another type, and for two in succession without a measurable overlap.
    """
    _check(pictures)
    profiles = [profile(picture) for picture in pictures]
    scrolls = []
    for number, (first, second) in enumerate(pairwise(profiles), 1):
        scroll = measure_scroll(first, second)
        if scroll is None:
            raise DeviceError(
                f"pictures {number} and {number + 1} do not overlap; scroll less far between two pictures of a page"
            )
        scrolls.append(scroll)
    return join(pictures, scrolls)


def join(pictures: Sequence[np.ndarray], scrolls: Sequence[Scroll]) -> Stitched:
    """The result of `stitch`, with the measured scrolls between the pictures.

    A seam is in the middle of what two pictures share: far from floating buttons at the bottom and from heads that
    stick to the top, so neither is repeated.
    """
    height = len(pictures[0])
    moved = [scroll for scroll in scrolls if scroll.rows]
    top = min((scroll.top for scroll in moved), default=0)
    bottom = min((scroll.bottom for scroll in moved), default=0)
    offsets = [0, *np.cumsum([scroll.exact for scroll in scrolls]).round().astype(int).tolist()]
    starts = [0]
    for before, offset in pairwise(offsets):
        starts.append((offset + top + before + height - bottom) // 2 if offset > before else starts[-1])
    ends = [*starts[1:], offsets[-1] + height]
    parts = zip(pictures, offsets, starts, ends, strict=True)
    pixels = np.concatenate([picture[start - offset : end - offset] for picture, offset, start, end in parts])
    return Stitched(pixels, tuple(offsets), tuple(starts), (top, bottom))


def _check(pictures: Sequence[np.ndarray]) -> None:
    if not pictures:
        raise DeviceError("no pictures to stitch; pass at least one")
    for number, picture in enumerate(pictures, 1):
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or not picture.size:
            raise DeviceError(
                f"picture {number} is {picture.dtype} {picture.shape}; pictures are uint8 (height, width, 3)"
            )
        if picture.shape != pictures[0].shape:
            sizes = ["×".join(map(str, one.shape[:2])) for one in (picture, pictures[0])]
            raise DeviceError(f"picture {number} is {sizes[0]}, the first {sizes[1]}; pictures of a page have one size")
