"""Pictures of a page that scrolls are stitched into one tall picture."""

from functools import partial

import numpy as np
import pytest
from helpers.phones.long_pages import page_of_lines
from PIL import Image

from studies.screens.stitching import stitch
from vlm_agent.devices.errors import DeviceError
from vlm_agent.simulator import SimulatedPhone

HEIGHT, WIDTH, TOP, BOTTOM = 160, 90, 20, 14
a_page = partial(page_of_lines, WIDTH)


def a_screen(page, at):
    """The screen when the page is scrolled by `at` rows, with a head, a foot, a floating button and a scroll bar."""
    bars = np.random.default_rng(9).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
    bars[TOP : HEIGHT - BOTTOM] = page[at : at + HEIGHT - TOP - BOTTOM]
    bars[HEIGHT - BOTTOM - 14 : HEIGHT - BOTTOM - 2, 60:75] = (200, 30, 30)
    place = TOP + at // 10
    bars[place : place + 20, WIDTH - 1] = 90
    return bars


@pytest.mark.parametrize("seed", range(5))
def test_the_tall_picture_is_the_page_with_each_bar_once(seed):
    rng = np.random.default_rng(seed)
    steps = [0, *rng.integers(20, 70, 4).cumsum()]
    page = a_page(steps[-1] + HEIGHT - TOP - BOTTOM, seed)
    screens = [a_screen(page, at) for at in steps]
    stitched = stitch(screens)
    assert stitched.offsets == tuple(steps)
    assert stitched.bars[0] in range(TOP, TOP + 5)  # a blank row beside a bar looks fixed
    assert stitched.bars[1] in range(BOTTOM, BOTTOM + 5)
    expected = np.concatenate([screens[0][:TOP], page, screens[0][-BOTTOM:]])
    assert stitched.pixels.shape == expected.shape
    off = (stitched.pixels[:, : WIDTH - 1] != expected[:, : WIDTH - 1]).any((1, 2))
    assert set(np.flatnonzero(off)) <= set(range(len(expected) - BOTTOM - 14, len(expected) - BOTTOM - 2))  # the button


def test_a_list_of_tiles_at_equal_distances_is_measured_by_what_differs():
    phone = SimulatedPhone(46)
    phone.open("Translate")
    phone.popup = None
    screens = []
    for scroll in (134.4, 325.05):
        phone.app("Translate").route.scroll = scroll
        phone.changed()
        screens.append(phone.screenshot())
    assert stitch(screens).offsets[1] in (190, 191)  # 5 rows: a shift by three tiles that agrees for the most part


def test_a_repeated_picture_adds_no_row():
    page = a_page(400)
    screens = [a_screen(page, at) for at in (0, 0, 50, 50)]
    assert stitch(screens).pixels.shape[0] == HEIGHT + 50


def test_photos_of_a_real_page_become_the_rows_that_another_tool_found(shared):
    photos = shared / "data/stitching"
    screens = [np.array(Image.open(photos / f"{number}.jpg").convert("RGB")) for number in (1, 2, 3)]
    published = np.array(Image.open(photos / "stitched.png").convert("RGB"))
    pixels = stitch(screens).pixels
    assert pixels.shape == published.shape == (2458, 640, 3)
    assert np.abs(pixels.astype(int) - published).mean() < 1


@pytest.mark.parametrize("size", [(1, 1), (1, 50), (50, 1), (2, 2), (300, 3)])
def test_pictures_of_one_colour_are_one_picture(size):
    grey = np.full((*size, 3), 128, np.uint8)
    assert np.array_equal(stitch([grey, grey, grey]).pixels, grey)


@pytest.mark.parametrize(
    ("pictures", "message"),
    [
        ([a_page(160, 1), a_page(160, 2)], "pictures 1 and 2 do not overlap"),
        ([np.zeros((1, 1, 3), np.uint8), np.full((1, 1, 3), 255, np.uint8)], "do not overlap"),
    ],
)
def test_what_is_not_pictures_of_one_page_is_an_error_of_one_line(pictures, message):
    with pytest.raises(DeviceError, match=message) as error:
        stitch(pictures)
    assert "\n" not in str(error.value)
