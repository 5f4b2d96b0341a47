"""Which element a tap is on, for many taps at once.

Boxes are those of all screens one after the other, float64 (P, 4) as (y, x, height, width), with the number of their
screen, (P,), rising.
"""

import numpy as np
import pyarrow as pa

from vlm_agent.datasets.shard_schema import IN_STEPS
from vlm_agent.datasets.shards import ShardDataset


def elements_at(points: np.ndarray, boxes: np.ndarray, screen: np.ndarray) -> np.ndarray:
    """Index into `boxes` of the smallest element under each screen's point (R, 2), -1 where there is none, (R,).

    Of equally small ones the first: as `episodes.element_at`, to the last bit.
    """
    inside = _holds(boxes[:, 0], boxes[:, 2], points[screen, 0])
    inside = inside[_holds(boxes[inside, 1], boxes[inside, 3], points[screen[inside], 1])]
    smallest_first = inside[np.lexsort((boxes[inside, 2] * boxes[inside, 3], screen[inside]))]
    under = np.full(len(points), -1)
    with_one, first = np.unique(screen[smallest_first], return_index=True)
    under[with_one] = smallest_first[first]
    return under


def _holds(corner: np.ndarray, size: np.ndarray, value: np.ndarray) -> np.ndarray:
    return np.flatnonzero((corner <= value) & (value <= corner + size))


def touched_names(dataset: ShardDataset) -> np.ndarray:
    """Of every step in the data set's order, the name of the smallest element under its touch, str objects (S,); empty
    where there is none. What is no tap has a name too, or not: nobody asked."""
    steps = dataset.table([IN_STEPS + "touch_yx", IN_STEPS + "elements"])["steps"]
    # A chunk at a time: of millions of screens all elements at once would be many gigabytes.
    return np.concatenate([np.zeros(0, object), *(_names_in(chunk.flatten()) for chunk in steps.chunks)])


def _names_in(steps: pa.StructArray) -> np.ndarray:
    elements = steps.field("elements")
    screen = np.repeat(np.arange(len(steps)), np.diff(elements.offsets.to_numpy()))
    listed = elements.flatten()
    boxes = listed.field("box").flatten().to_numpy().reshape(-1, 4).astype(np.float64)
    points = steps.field("touch_yx").flatten().to_numpy().reshape(-1, 2).astype(np.float64)
    under = elements_at(points, boxes, screen)
    found = listed.take(pa.array(under[under >= 0]))
    names = np.full(len(steps), "", object)
    pairs = zip(found.field("text").to_pylist(), found.field("type").to_pylist(), strict=True)
    names[under >= 0] = [text or kind for text, kind in pairs]
    return names
