"""PNG of screens: lossless, readable by other programs."""

import io

import numpy as np
import pytest
from helpers.data.made_episodes import made_screen
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vlm_agent.datasets.shards.schema import decode_screen
from vlm_agent.errors import DatasetError
from vlm_agent.files.png import encode_png
from vlm_agent.simulator import SimulatedPhone


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 99))
def test_pixels_survive_exactly(height, width, seed):
    screen = made_screen(height, width, seed)
    again = decode_screen(encode_png(screen))
    assert again.dtype == np.uint8 and np.array_equal(again, screen)


def test_real_screens_survive_exactly_as_a_png_that_pillow_accepts(shared):
    for path in sorted((shared / "data/screens").glob("*.png"))[:3]:
        screen = np.array(Image.open(path).convert("RGB"))
        png = encode_png(screen)
        with Image.open(io.BytesIO(png)) as image:
            assert (image.format, image.mode) == ("PNG", "RGB")
            image.verify()
        assert np.array_equal(decode_screen(png), screen)


def test_views_that_are_not_contiguous_are_encoded_as_they_look():
    screen = made_screen(40, 30)[::2, ::-1]
    assert np.array_equal(decode_screen(encode_png(screen)), screen)


def test_every_app_of_a_full_size_phone_survives_exactly():
    phone = SimulatedPhone(3, (2400, 1080))
    for app in sorted(phone.installed)[::6]:
        phone.open(app)
        screen = phone.screenshot()
        assert np.array_equal(decode_screen(encode_png(screen)), screen), app


@pytest.mark.parametrize(
    "screen",
    [
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((4, 4, 3)),
        np.zeros((0, 4, 3), np.uint8),
        np.zeros((4, 0, 3), np.uint8),
    ],
)
def test_an_array_that_is_not_an_rgb_screen_is_refused(screen):
    with pytest.raises(DatasetError, match="a screen is uint8"):
        encode_png(screen)
