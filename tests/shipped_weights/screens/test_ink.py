"""Every widget's box lies on its ink: the pixels that differ from those around the box."""

import numpy as np
import pytest

from shipped_weights.screens.samples import SampleSettings, sample

SCREENS, GROW, CONTRAST = 25, 3, 10


def ink_box(pixels, box) -> tuple[int, int, int, int] | None:
    """(top, left, bottom, right) of the ink in `box`, grown by some pixels; None if it has none."""
    top, left, bottom, right = box
    rows, columns = slice(max(0, top - GROW), bottom + GROW), slice(max(0, left - GROW), right + GROW)
    area = pixels[rows, columns].astype(int)
    ring = np.ones(area.shape[:2], bool)
    ring[top - rows.start : bottom - rows.start, left - columns.start : right - columns.start] = False
    ground = np.median(area[ring], axis=0)
    ys, xs = np.nonzero(abs(area - ground).max(axis=2) > CONTRAST)
    if not len(ys):
        return None
    return ys.min() + rows.start, xs.min() + columns.start, ys.max() + 1 + rows.start, xs.max() + 1 + columns.start


def overlap(pixels, widget, shift: float) -> float:
    """IoU of the box, moved down by `shift` of its height, with its ink."""
    height, width = pixels.shape[:2]
    y, x, tall, wide = widget.box
    y += shift * tall
    box = round(y * height), round(x * width), round((y + tall) * height), round((x + wide) * width)
    ink = ink_box(pixels, box) if box[2] <= height else None
    if ink is None:
        return 0.0
    high, broad = min(box[2], ink[2]) - max(box[0], ink[0]), min(box[3], ink[3]) - max(box[1], ink[1])
    inside = max(0, high) * max(0, broad)
    both = sum((area[2] - area[0]) * (area[3] - area[1]) for area in (box, ink))
    return inside / (both - inside)


@pytest.mark.parametrize("collage", [0.0, 1.0])
def test_boxes_lie_on_their_ink_and_moved_boxes_do_not(collage):
    settings = SampleSettings(collage=collage, augment=0.0, sizes=((448, 208), (640, 304)))
    fits = {0.0: [], 0.5: []}
    for number in range(SCREENS):
        pixels, widgets = sample(5, number, settings)
        for widget in widgets:
            if not widget.kind.endswith("_bar") or widget.kind in ("seek_bar", "rating_bar"):
                for shift, found in fits.items():
                    found.append(overlap(pixels, widget, shift) >= 0.5)
    assert len(fits[0.0]) > 100
    assert np.mean(fits[0.0]) > 0.96
    assert np.mean(fits[0.5]) < 0.6
