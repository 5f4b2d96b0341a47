"""Screens have the sizes of the models' own image processors, and tokens are counted from sizes alone."""

import numpy as np
import pytest
from helpers import tiny
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from vlm_agent.sentences.image_sizes import FittedScreens, FixedScreens

SIDES = st.integers(8, 3000)
QWEN_2 = FittedScreens(56 * 56, 1280 * 28 * 28, 28)
QWEN_3 = FittedScreens(4 * 32 * 32, 300 * 32 * 32, 32)


@given(SIDES, SIDES, st.sampled_from([QWEN_2, QWEN_3]))
def test_fitted_sizes_are_those_of_smart_resize(height, width, rule):
    if max(height, width) / min(height, width) > 200:
        return  # smart_resize rejects such aspect ratios
    expected = smart_resize(height, width, rule.multiple, rule.min_pixels, rule.max_pixels)
    assert rule.fitted(height, width) == expected
    assert rule.grid(height, width) == tuple(side // rule.multiple for side in expected)
    assert rule.tokens(height, width) == expected[0] * expected[1] // rule.multiple**2


@given(st.integers(300, 3000), st.integers(300, 3000), st.sampled_from([QWEN_2, QWEN_3]))
def test_a_fitted_size_is_fitted_to_itself(height, width, rule):
    """Sentences count the tokens of prepared screens, token budgets those of recorded screens."""
    fitted = rule.fitted(height, width)
    assert rule.fitted(*fitted) == fitted


@pytest.mark.parametrize("size", [(30, 20), (60, 30), (1280, 720), (2400, 1080), (64, 64)])
@pytest.mark.parametrize("rule", [QWEN_2, QWEN_3, FixedScreens((96, 48), 18)], ids=["28", "32", "one size"])
def test_a_prepared_screen_has_the_counted_number_of_tokens(size, rule):
    screenshot = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    prepared, blank = rule.prepare(screenshot), rule.blank(*size)
    assert prepared.shape == blank.shape
    assert prepared.dtype == blank.dtype == np.uint8
    assert rule.tokens(*prepared.shape[1:]) == rule.tokens(*size)
    assert (blank == 128).all()


def test_fitted_screens_are_resampled_once_with_bicubic_interpolation():
    screenshot = tiny.episode(size=(300, 140)).steps[0].screenshot
    rule = FittedScreens(56 * 56, 20 * 28 * 28, 28)
    height, width = rule.fitted(300, 140)
    expected = Image.fromarray(screenshot).resize((width, height), Image.Resampling.BICUBIC)
    assert np.array_equal(rule.prepare(screenshot), np.asarray(expected).transpose(2, 0, 1))


def test_a_screen_of_the_fitted_size_is_not_resampled():
    screenshot = tiny.episode(size=(112, 56)).steps[0].screenshot
    assert np.array_equal(QWEN_2.prepare(screenshot), screenshot.transpose(2, 0, 1))
