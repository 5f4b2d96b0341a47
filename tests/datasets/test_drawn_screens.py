"""Screens drawn on the fly: each from its generator alone, annotated, and none of a demonstration's."""

import random

import numpy as np
import pytest

from vlm_agent.datasets.drawn_screens import any_word, draw_screen, heard_texts, phone_words, train_goals
from vlm_agent.devices.simulated_phone import sample_task, split_of
from vlm_agent.devices.simulated_phone.styles import SIZES
from vlm_agent.episodes import SUBSETS


def drawn(seed: int):
    return draw_screen(random.Random(seed))


def test_a_seed_decides_a_screen():
    one, again, other = drawn(1), drawn(1), drawn(2)
    assert np.array_equal(one.step.screenshot, again.step.screenshot)
    assert one.step.elements == again.step.elements
    assert one.switches == again.switches
    assert not np.array_equal(one.step.screenshot, other.step.screenshot)


def test_screens_have_every_size_and_something_to_name():
    screens = [drawn(seed) for seed in range(60)]
    assert {screen.step.screenshot.shape[:2] for screen in screens} == set(SIZES)
    assert np.mean([len(screen.step.elements) for screen in screens]) > 10
    assert any(screen.switches for screen in screens)


def test_words_are_the_phones_common_ones_and_some_that_nobody_knows():
    words = {any_word(random.Random(seed)) for seed in range(2000)}
    assert len(words & set(phone_words())) > 150
    assert len(words - set(phone_words())) > 300


def test_the_goals_whose_words_are_heard_are_those_of_the_train_split():
    goals = train_goals()
    assert len(set(goals)) > 2000
    tasks = [sample_task(SUBSETS[number % len(SUBSETS)], "train", number) for number in range(100)]
    assert goals[:100] == tuple(task.goal for task in tasks)
    assert {split_of(task.instance) for task in tasks} == {"train"}


@pytest.mark.parametrize("word", ["Settings", "Bluetooth", "headphones", "Megamart", "ICON_THREE_DOTS"])
def test_what_a_tokenizer_is_made_of_holds_the_phones_words(word, heard):
    assert word in heard


@pytest.fixture(scope="module")
def heard() -> set[str]:
    return set(heard_texts())
