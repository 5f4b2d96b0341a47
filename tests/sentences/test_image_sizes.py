"""Screens have the sizes of the models' own image processors, and tokens are counted from sizes alone."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny
from helpers.models import tiny_qwen
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from vlm_agent.episodes import Action, Step
from vlm_agent.models.build import configuration_of
from vlm_agent.models.family import processor_of
from vlm_agent.sentences import SCREEN_TOKEN, Sentence
from vlm_agent.sentences.image_sizes import CachedScreens, FittedScreens, FixedScreens

SIDES = st.integers(8, 3000)
QWEN_2 = FittedScreens(56 * 56, 1280 * 28 * 28, 28)
QWEN_3 = FittedScreens(4 * 32 * 32, 300 * 32 * 32, 32)


@given(SIDES, SIDES, st.sampled_from([QWEN_2, QWEN_3]))
def test_fitted_sizes_are_those_of_smart_resize(height, width, rule):
    if max(height, width) / min(height, width) > 200:
        return  # smart_resize rejects such aspect ratios
    expected = smart_resize(height, width, rule.multiple, rule.min_pixels, rule.max_pixels)
    assert rule.fitted(height, width) == expected
    assert rule.tokens(height, width) == expected[0] * expected[1] // rule.multiple**2


@given(st.integers(300, 3000), st.integers(300, 3000), st.sampled_from([QWEN_2, QWEN_3]))
def test_a_fitted_size_of_a_phone_is_fitted_to_itself(height, width, rule):
    """So a server does not resize a prepared screen again."""
    fitted = rule.fitted(height, width)
    assert rule.fitted(*fitted) == fitted


NARROW = FittedScreens(4 * 64, 24 * 64, 8)
NO_ROOM = FittedScreens(24 * 64, 24 * 64, 8)
RULES = [NARROW, NO_ROOM, FixedScreens((96, 48), 18)]


@given(st.integers(1, 40), st.integers(1, 1600), st.booleans(), st.sampled_from([*RULES, *map(CachedScreens, RULES)]))
@example(4, 911, False, NARROW)
def test_a_sentence_has_a_place_for_each_token_of_any_strip(short, long, is_wide, rule):
    size = (short, long) if is_wide else (long, short)
    step = Step(np.zeros((*size, 3), np.uint8), Action.tap(0.5, 0.5))
    for grey in (False, True):
        sentences = replace(tiny.sentences(tiny.tokenizer(), grey=grey), screens=rule)
        sentence = Sentence()
        sentence = sentences.encode([sentences.shown(step)])
        assert len(sentence) == rule.tokens(*size) == rule.tokens_of_prepared(*rule.fitted(*size))
        assert sentence.screens[0].shape[1:] == rule.fitted(*size)
        if isinstance(rule, FittedScreens):
            rows, columns = (side // rule.multiple for side in sentence.screens[0].shape[1:])
            assert len(sentence) == rows * columns


@pytest.mark.parametrize("family", tiny_qwen.FAMILIES)
@pytest.mark.parametrize("size", [(3, 900), (900, 3), (1, 1600), (8, 1000)])
def test_a_strip_is_collated_and_counted_alike_in_every_family(family, size):
    recipe = tiny_qwen.recipe(family)
    words = tiny_qwen.tokenizer(recipe)
    processor = processor_of(configuration_of(recipe, words))
    sentences = processor.sentences(words, tiny.LANGUAGE)
    assert processor.screens.fitted(*processor.screens.fitted(*size)) != processor.screens.fitted(*size)
    sentence = sentences.build(tiny.episode(size=size))
    row = processor.collate([sentence])
    patches = int(row["grids"].prod(-1).sum())
    assert len(row["patches"]) == patches == 4 * sentence.input_ids.count(SCREEN_TOKEN)
    assert sentence.input_ids.count(SCREEN_TOKEN) == len(sentence.screens) * processor.screens.tokens(*size)


@pytest.mark.parametrize("size", [(30, 20), (60, 30), (1280, 720), (2400, 1080), (64, 64)])
@pytest.mark.parametrize("rule", [QWEN_2, QWEN_3, FixedScreens((96, 48), 18)], ids=["28", "32", "one size"])
def test_a_prepared_screen_has_the_counted_number_of_tokens(size, rule):
    screenshot = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    prepared, blank = rule.prepare(screenshot), rule.blank(*size)
    assert prepared.shape == blank.shape
    assert prepared.dtype == blank.dtype == np.uint8
    assert rule.tokens_of_prepared(*prepared.shape[1:]) == rule.tokens(*size)
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
