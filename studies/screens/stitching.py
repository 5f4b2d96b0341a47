"""One tall picture of pictures alone, without a device that scrolls."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from vlm_agent.devices.errors import DeviceError
from vlm_agent.devices.long_screen.matching import measure_scroll, profile
from vlm_agent.devices.long_screen.tall import Stitched, join


def stitch(pictures: Sequence[np.ndarray]) -> Stitched:
    """Pictures are uint8 (height, width, 3), all of one size, in the order of scrolling.

    A picture that shows the same rows as the one before adds none. Raises DeviceError for two in succession without a
    measurable overlap.
    """
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
