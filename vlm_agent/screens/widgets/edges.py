"""`edges`: everything that stands out from its surroundings, without a model.

Gradient, closing of small gaps, connected components. It knows no kinds: all are `image`, lines of text too.
"""

from dataclasses import dataclass

import numpy as np
from PIL import Image

from vlm_agent.episodes import Widget
from vlm_agent.screens.widgets.boxes import fraction_box, in_reading_order


@dataclass(frozen=True)
class Edges:
    """`width`: wider pictures are reduced to it, in pixels. `contrast`: least difference of neighbours, grey levels.

    The others are fractions of the width: `gap` is closed between edges, components with a side below `smallest` are
    noise, and those with a side above `largest`, or an area above half of its square, are panels.
    """

    width: int = 540
    contrast: int = 20
    gap: float = 0.014
    smallest: float = 0.012
    largest: float = 0.98

    def detect(self, pixels: np.ndarray) -> tuple[Widget, ...]:
        small = reduced(pixels, self.width)
        height, width = small.shape[:2]
        from scipy import ndimage  # half a second, which settings that name a detector need not wait for

        labels, _ = ndimage.label(_closed(_edges(small, self.contrast), max(1, round(self.gap * width))))
        boxes = [
            (rows.start, columns.start, rows.stop, columns.stop)
            for rows, columns in ndimage.find_objects(labels)
            if self._is_widget(rows.stop - rows.start, columns.stop - columns.start, width)
        ]
        return in_reading_order(Widget("image", fraction_box(box, height, width)) for box in boxes)

    def _is_widget(self, high: int, wide: int, width: int) -> bool:
        low, most = self.smallest * width, self.largest * width
        return low <= high <= most and low <= wide <= most and high * wide <= most * most / 2


def reduced(pixels: np.ndarray, width: int) -> np.ndarray:
    """The picture at `width` pixels if it is wider, by area averages; otherwise as it is."""
    high, wide = pixels.shape[:2]
    if wide <= width:
        return pixels
    return np.array(Image.fromarray(pixels).resize((width, max(1, round(high * width / wide))), Image.Resampling.BOX))


def _edges(pixels: np.ndarray, contrast: int) -> np.ndarray:
    """(H, W) bool: pixels that differ from the next one below or on the right in any channel."""
    values = pixels.astype(np.int16)
    result: np.ndarray = np.zeros(pixels.shape[:2], bool)
    for axis in (0, 1):
        differs = np.any(np.abs(np.diff(values, axis=axis)) > contrast, axis=-1)
        result[: differs.shape[0], : differs.shape[1]] |= differs
        # Both sides of an edge, so that the component covers the widget's outermost pixels.
        result[result.shape[0] - differs.shape[0] :, result.shape[1] - differs.shape[1] :] |= differs
    return result


def _closed(edges: np.ndarray, gap: int) -> np.ndarray:
    """Gaps of up to `gap` pixels along a row and half as many along a column are filled."""
    from scipy import ndimage

    size = (gap // 2 + 1, gap + 1)
    padded = np.pad(edges, gap + 1)
    grown = ndimage.maximum_filter(padded, size)
    # The opposite origin for even sizes, where the filter is not symmetric: closing must not shift the picture.
    closed: np.ndarray = ndimage.minimum_filter(grown, size, origin=tuple(-1 if side % 2 == 0 else 0 for side in size))
    return closed[gap + 1 : -gap - 1, gap + 1 : -gap - 1]
