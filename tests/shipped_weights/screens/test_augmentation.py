"""Random colours: of a whole screen, and of the drawn pixels of one widget alone."""

import random

import numpy as np
from PIL import Image, ImageDraw

from shipped_weights.screens.augmentation import change_colours, change_patch
from shipped_weights.screens.collages import widget_collage
from vlm_agent.simulator.drawing.canvas import Canvas


def test_colours_change_within_bounds_and_no_change_leaves_them():
    pixels = np.random.default_rng(0).integers(60, 180, (20, 10, 3), np.uint8)
    assert np.array_equal(change_colours(pixels, random.Random(0), 0.0), pixels)
    changed = [change_colours(pixels, random.Random(seed), 0.2) for seed in range(20)]
    means = [one.mean() / pixels.mean() for one in changed]
    assert all(0.65 < mean < 1.4 for mean in means)
    assert max(means) - min(means) > 0.1
    assert all(one.dtype == np.uint8 and one.shape == pixels.shape for one in changed)
    white = np.full((4, 4, 3), 255, np.uint8)
    assert all(change_colours(white, random.Random(seed), 0.2).min() > 130 for seed in range(20)), "no overflow"


def test_a_patch_changes_where_something_was_drawn_and_nowhere_else():
    before = Image.new("RGB", (40, 30), (200, 200, 200))
    image = before.copy()
    ImageDraw.Draw(image).rectangle((10, 10, 19, 14), fill=(20, 60, 90))
    change_patch(image, before, (5, -3, 60, 25), random.Random(1))
    changed = (np.array(image) != 200).any(axis=2)
    assert changed.sum() == 50
    assert changed[10:15, 10:20].all()
    assert np.abs(np.array(image)[12, 15].astype(int) - (20, 60, 90)).max() > 5


def test_nothing_drawn_nothing_changed():
    image = Image.new("RGB", (8, 8), (9, 9, 9))
    change_patch(image, image.copy(), (0, 0, 8, 8), random.Random(0))
    assert image.getcolors() == [(64, (9, 9, 9))]


def test_a_collage_with_tabs_has_exactly_one_active_tab_in_each_row():
    rows = 0
    for seed in range(20):
        canvas: Canvas = widget_collage(random.Random(seed), (448, 208))
        for is_upper in (True, False):
            tabs = [tab for tab in canvas.tabs if (tab.box[1] < 224) is is_upper]
            rows += bool(tabs)
            assert sum(tab.active for tab in tabs) == bool(tabs)
    assert rows > 3
