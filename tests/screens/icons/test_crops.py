import numpy as np
import pytest
from PIL import Image, ImageDraw

from vlm_agent.screens.icons.crops import normalised, squared


def cross(height=40, width=40, side=12, ink=(0, 0, 0), background=(255, 255, 255)):
    """A cross of `side` pixels, in the middle of a crop."""
    picture = Image.new("RGB", (width, height), background)
    pen = ImageDraw.Draw(picture)
    top, left = (height - side) // 2, (width - side) // 2
    pen.line([left, top, left + side, top + side], ink, 2)
    pen.line([left, top + side, left + side, top], ink, 2)
    return np.array(picture)


def test_the_size_of_a_touch_area_does_not_change_what_is_seen():
    assert np.array_equal(normalised(cross(40, 40), 32), normalised(cross(120, 300), 32))


def test_a_dark_theme_shows_the_same_icon_with_the_opposite_sign():
    light, dark = normalised(cross(), 32), normalised(cross(ink=(255, 255, 255), background=(0, 0, 0)), 32)
    assert np.abs(light + dark).max() < 0.02


def test_a_wide_icon_stays_wide():
    crop = np.full((60, 60, 3), 255, np.uint8)
    crop[28:32, 10:50] = 0
    ink = np.abs(normalised(crop, 48)).max(2) > 0.5
    assert ink.any(0).sum() > 5 * ink.any(1).sum()


def test_a_crop_without_a_background_is_taken_whole():
    picture = np.random.default_rng(0).integers(0, 256, (30, 20, 3), np.uint8)
    assert squared(picture, 34).shape == (34, 34, 3)
    assert (np.abs(normalised(picture, 34)).max(2) > 0).mean() > 0.5


@pytest.mark.parametrize("shape", [(0, 0, 3), (0, 9, 3), (1, 1, 3), (1, 50, 3), (50, 1), (1, 1, 4)])
def test_nothing_is_seen_in_a_crop_of_a_pixel_or_less(shape):
    assert normalised(np.zeros(shape, np.uint8), 32) is None
    assert squared(np.zeros(shape, np.uint8), 32) is None


def test_nothing_is_seen_in_one_colour():
    assert normalised(np.full((30, 30, 3), 77, np.uint8), 32) is None


def test_grey_and_transparent_crops_show_the_same_icon():
    crop = cross()
    grey = crop[..., 0]
    transparent = np.dstack([np.zeros_like(crop), 255 - grey])
    for same in (grey, grey[..., None], transparent):
        assert np.array_equal(normalised(same, 32), normalised(crop, 32))


@pytest.mark.parametrize("crop", [np.zeros((9, 9, 3)), np.zeros(9, np.uint8), np.zeros((9, 9, 2), np.uint8)])
def test_an_array_that_is_not_a_crop_is_refused(crop):
    with pytest.raises(ValueError, match="a crop must be uint8"):
        normalised(crop, 32)
