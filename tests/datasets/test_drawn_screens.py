"""Screens drawn on the fly: each from its generator alone, annotated, and none of a demonstration's."""

import random
from itertools import pairwise

import numpy as np
import pytest

from vlm_agent.datasets.drawn_screens import (
    any_word,
    draw_errand,
    draw_hint,
    draw_play,
    draw_screen,
    heard_texts,
    phone_words,
    train_goals,
)
from vlm_agent.devices.simulated_phone import sample_task, split_of
from vlm_agent.devices.simulated_phone.phone import POPUPS
from vlm_agent.devices.simulated_phone.styles import SIZES
from vlm_agent.episodes import SUBSETS, Action, element_at
from vlm_agent.sentences.sought import sought_names


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


def test_an_errand_tells_every_step_before_the_first_and_ends_when_all_is_done():
    errands = [draw_errand(random.Random(seed)) for seed in range(80)]
    ordered = {errand.goal.split(": ")[0] for errand in errands}
    assert ordered == {"In turn", "In any order"}
    for errand in errands:
        told = errand.goal.split(": ", 1)[1].split(", ")
        impossible = errand.steps[-1].action == Action.impossible()
        assert impossible or errand.steps[-1].action == Action.complete()
        assert len(told) == len(errand) - (not impossible)
        assert not any(step.action.is_status for step in errand.steps[:-1])
        if errand.goal.startswith("In any order"):
            assert all(step.action.is_tap for step in errand.steps[:-1])
        if impossible:
            shown = " ".join(element.text for element in errand.steps[-1].elements).casefold()
            assert told[-1].casefold() not in shown
    assert 2 <= sum(errand.steps[-1].action == Action.impossible() for errand in errands) <= 20


def test_a_hint_tells_where_a_walk_ends_and_what_is_typed_and_never_turns_back():
    hints = [draw_hint(random.Random(seed)) for seed in range(60)]
    shorter = 0
    for hint in hints:
        kinds = [step.action.name for step in hint.steps]
        assert set(kinds[:-1]) <= {"tap", "type", "enter"}
        assert kinds[-1] == "complete"
        assert all(step.action.text in hint.goal for step in hint.steps if step.action.name == "type")
        told = [step for step in hint.steps[:-1] if step.action.name != "enter"]
        if told[-1].action.is_tap:
            touched = element_at(told[-1].elements, told[-1].action.touch_yx)
            assert touched.name in hint.goal or touched.type.startswith("ICON_")  # an app's name in place of its icon
        shorter += hint.goal.count(" and ") + hint.goal.count(", ") + hint.goal.count(" then ") + 1 < len(told)
    assert shorter > 15


def test_play_comes_upon_something_and_its_goal_tells_the_end_and_what_is_typed():
    walks = [draw_play(random.Random(seed)) for seed in range(80)]
    kinds = [[step.action.name for step in walk.steps] for walk in walks]
    assert {kind for walk in kinds for kind in walk[:-1]} == {"tap", "type", "enter", "home", "swipe"}
    assert all(walk[-1] == "complete" for walk in kinds)
    typed = [(step.action.text, walk) for walk in walks for step in walk.steps if step.action.name == "type"]
    assert all(text.casefold() in walk.goal.casefold() for text, walk in typed)
    found = [
        any(text.casefold() in _shown(step) for step in walk.steps[:-1] if step.action.is_tap) for text, walk in typed
    ]
    assert sum(found) > len(found) / 4


def test_no_swipe_of_play_leaves_the_screen_as_it_was():
    for seed in range(80):
        steps = draw_play(random.Random(seed)).steps
        for before, after in pairwise(steps):
            assert before.action.name != "swipe" or before.elements != after.elements


def test_play_swipes_for_much_of_what_it_taps_and_its_goal_tells_what_came():
    walks = [draw_play(random.Random(seed)) for seed in range(60)]
    found = swiped_for(walks)
    assert len(found) > len(walks) / 3
    for walk, before, after in found:
        touched = element_at(after.elements, after.action.touch_yx)
        if touched.name not in {element.name for element in before.elements} and touched.text:
            assert touched.name in walk.goal
    assert not any(walk.steps[-2].action.name == "swipe" for walk in walks)


def test_play_swipes_to_the_sides_too_and_mostly_finds_what_it_reached_for():
    walks = [draw_play(random.Random(seed)) for seed in range(60)]
    swipes = [step.action.direction for walk in walks for step in walk.steps if step.action.name == "swipe"]
    sideways = [direction for direction in swipes if direction in ("left", "right")]
    assert len(swipes) / 3 < len(sideways) < len(swipes)
    named = [name for walk in walks for name in sought_names(walk.steps) if name]
    assert len(named) > len(swipes) / 2


def swiped_for(walks: list) -> list[tuple]:
    """(walk, the step of a swipe, that of the tap which followed)"""
    pairs = [(walk, *pair) for walk in walks for pair in pairwise(walk.steps)]
    return [pair for pair in pairs if pair[1].action.name == "swipe" and pair[2].action.is_tap]


def test_a_dialog_is_sent_away_before_anything_else():
    walks = [draw_play(random.Random(seed)) for seed in range(80)]
    first = [
        element_at(walk.steps[0].elements, walk.steps[0].action.touch_yx)
        for walk in walks
        if walk.steps[0].action.is_tap
    ]
    ways_out = {popup[3] for popup in POPUPS}
    assert 1 <= sum(touched.name in ways_out for touched in first) <= 15


def _shown(step) -> str:
    touched = element_at(step.elements, step.action.touch_yx)
    return "" if touched is None else touched.text.casefold()


def test_a_seed_decides_an_errand_pixels_and_all():
    one, again, other = (draw_errand(random.Random(seed)) for seed in (1, 1, 2))
    assert (one.goal, len(one)) == (again.goal, len(again))
    assert all(np.array_equal(a.screenshot, b.screenshot) for a, b in zip(one.steps, again.steps, strict=True))
    assert one.goal != other.goal


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
