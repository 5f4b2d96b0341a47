import io
import math
from importlib import import_module

import numpy as np
import pytest
from helpers.data.made_episodes import made_screen
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vlm_agent.datasets.shards.images import IMAGE_FORMATS, ScreenFormat, fitted_size
from vlm_agent.datasets.shards.schema import decode_screen
from vlm_agent.errors import DatasetError

LOSSLESS = ("png", "webp")


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
    for name in IMAGE_FORMATS:
        with pytest.raises(DatasetError, match="a screen is uint8"):
            ScreenFormat(name, max_pixels=784).encode(screen)


def _picture(encoded):
    return Image.open(io.BytesIO(encoded.data))


def _flat_screen(height, width, seed):
    """Large even areas with hard edges, as a phone's screen has and noise has not."""
    return np.kron(made_screen(height // 8 + 1, width // 8 + 1, seed), np.ones((8, 8, 1), np.uint8))[:height, :width]


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(LOSSLESS),
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(0, 99),
    st.sampled_from([made_screen, _flat_screen]),
)
def test_a_lossless_format_keeps_every_pixel(name, height, width, seed, make):
    screen = make(height, width, seed)
    screen.flags.writeable = False
    encoded = ScreenFormat(name).encode(screen)
    assert (encoded.height, encoded.width) == (height, width)
    assert _picture(encoded).format == name.upper()
    assert np.array_equal(decode_screen(encoded.data), screen)


def test_real_screens_survive_exactly_as_webp(shared):
    for path in sorted((shared / "data/screens").glob("*.png"))[:2]:
        screen = np.array(Image.open(path).convert("RGB"))
        assert np.array_equal(decode_screen(ScreenFormat("webp").encode(screen).data), screen)


@pytest.mark.parametrize("name", IMAGE_FORMATS)
def test_a_view_that_is_not_contiguous_is_encoded_as_its_copy(name):
    screen = made_screen(40, 30)[::2, ::-1]
    assert ScreenFormat(name).encode(screen) == ScreenFormat(name).encode(screen.copy())


@pytest.mark.parametrize("quality", [1, 50, 90, 100])
def test_jpeg_keeps_colour_at_full_resolution(quality):
    picture = _picture(ScreenFormat("jpeg", quality).encode(made_screen()))
    assert picture.format == "JPEG" and picture.mode == "RGB"
    assert [(horizontal, vertical) for _, horizontal, vertical, _ in picture.layer] == [(1, 1)] * 3


def test_a_thin_red_line_is_still_red_in_a_jpeg():
    screen = np.full((64, 64, 3), 255, np.uint8)
    screen[:, 33] = (255, 0, 0)
    red, green, blue = decode_screen(ScreenFormat("jpeg").encode(screen).data)[:, 33].T.astype(int)
    assert red.min() > 220 and green.max() < 40 and blue.max() < 40


def test_a_jpeg_of_higher_quality_is_nearer_to_the_screen_and_larger():
    screen = _flat_screen(128, 96, 1)
    encoded = [ScreenFormat("jpeg", quality).encode(screen) for quality in (1, 50, 90, 100)]
    sizes = [len(each.data) for each in encoded]
    distances = [np.abs(decode_screen(each.data).astype(int) - screen).mean() for each in encoded]
    assert sizes == sorted(sizes) and distances == sorted(distances)[::-1] and distances[-1] < 1


def test_a_format_is_described_by_the_options_that_have_an_effect():
    assert ScreenFormat("png", quality=50, multiple=14).described() == {"name": "png"}
    assert ScreenFormat("webp", quality=50).described() == {"name": "webp"}
    assert ScreenFormat("jpeg", quality=50).described() == {"name": "jpeg", "quality": 50}
    resized = {"name": "png", "max_pixels": 784, "multiple": 14}
    assert ScreenFormat(**resized).described() == resized


@pytest.mark.parametrize("quality", [0, 101, -1])
def test_a_quality_that_jpeg_does_not_have_is_refused(quality):
    with pytest.raises(DatasetError, match=f"quality is 1 to 100, got {quality}"):
        ScreenFormat("jpeg", quality)


def test_an_unknown_format_is_refused_and_the_known_ones_are_named():
    with pytest.raises(DatasetError, match="'bmp' is unknown; there are png, webp, jpeg"):
        ScreenFormat("bmp")


@pytest.mark.parametrize(
    ("budget", "multiple", "reason"),
    [
        (783, 28, "at most 783 pixels and sides that are multiples of 28"),
        (0, 28, "at most 0 pixels"),
        (1000, 0, "multiples of 1 or more, got 0"),
        (None, -28, "multiples of 1 or more, got -28"),
    ],
)
def test_a_budget_that_no_screen_meets_is_refused(budget, multiple, reason):
    with pytest.raises(DatasetError, match=reason):
        ScreenFormat(max_pixels=budget, multiple=multiple)


@pytest.mark.parametrize("name", IMAGE_FORMATS)
def test_the_same_screen_gives_the_same_bytes(name):
    format_ = ScreenFormat(name, max_pixels=784)
    assert format_.encode(made_screen()) == format_.encode(made_screen())


@pytest.fixture(scope="module")
def smart_resize():
    """What the model's own processor computes, with no lower limit."""
    import_module("vlm_agent.models")  # makes torchvision importable, which transformers' image processors import
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

    return lambda size, budget, multiple: smart_resize(*size, multiple, min_pixels=0, max_pixels=budget)


_side = st.integers(1, 4000)
_size = st.tuples(_side, _side).filter(lambda size: max(size) <= 200 * min(size))
_phone = st.tuples(st.integers(300, 4000), st.integers(300, 4000))
_multiple = st.sampled_from([28, 32])
_tight = st.integers(-2, 2)


@settings(deadline=None, max_examples=400)
@given(size=_size, budget=st.integers(1024, 4_000_000), multiple=_multiple)
def test_a_screen_over_the_budget_gets_the_size_that_the_model_would_give_it(smart_resize, size, budget, multiple):
    rounded = smart_resize(size, 10**9, multiple)
    expected = size if math.prod(rounded) <= budget else smart_resize(size, budget, multiple)
    assert fitted_size(size, budget, multiple) == expected


@settings(deadline=None, max_examples=200)
@given(size=_phone, rows=st.integers(2, 60), columns=st.integers(2, 60), near=_tight, multiple=_multiple)
def test_the_size_agrees_with_the_models_at_budgets_that_just_hold_a_grid(
    smart_resize, size, rows, columns, near, multiple
):
    budget = rows * columns * multiple**2 + near
    fitted = fitted_size(size, budget, multiple)
    assert fitted in (size, smart_resize(size, budget, multiple))
    fitted = fitted_size((rows * multiple, columns * multiple), budget, multiple)
    assert fitted == smart_resize((rows * multiple, columns * multiple), budget, multiple)


@settings(deadline=None, max_examples=400)
@given(size=_phone, budget=st.integers(50_000, 4_000_000), multiple=_multiple)
def test_the_model_does_not_resize_a_downscaled_screen(smart_resize, size, budget, multiple):
    fitted = fitted_size(size, budget, multiple)
    if fitted != size:
        assert smart_resize(fitted, budget, multiple) == fitted and math.prod(fitted) <= budget
    assert fitted_size(fitted, budget, multiple) == fitted


@pytest.mark.parametrize("name", LOSSLESS)
def test_a_screen_within_the_budget_is_untouched(name):
    screen = made_screen(57, 83)
    encoded = ScreenFormat(name, max_pixels=56 * 84).encode(screen)
    assert (encoded.height, encoded.width) == (57, 83)
    assert np.array_equal(decode_screen(encoded.data), screen)


@pytest.mark.parametrize("name", IMAGE_FORMATS)
def test_a_screen_over_the_budget_is_stored_smaller_and_looks_the_same(name):
    screen = np.zeros((280, 140, 3), np.uint8)
    screen[:140] = (200, 0, 0)
    screen[140:, 70:] = (0, 0, 200)
    encoded = ScreenFormat(name, max_pixels=140 * 70).encode(screen)
    small = decode_screen(encoded.data).astype(int)
    assert small.shape == (encoded.height, encoded.width, 3) == (140, 56, 3)
    for place, colour in (((28, 28), (200, 0, 0)), ((100, 14), (0, 0, 0)), ((100, 42), (0, 0, 200))):
        assert np.abs(small[place] - colour).max() <= 4


def test_what_does_not_fit_is_measured_with_rounded_sides_as_the_model_does():
    assert fitted_size((41, 41), 28 * 28, 28) == (41, 41)
    assert fitted_size((43, 43), 28 * 28, 28) == (28, 28)
