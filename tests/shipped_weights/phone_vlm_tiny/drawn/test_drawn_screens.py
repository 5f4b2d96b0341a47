"""Drawn screens and walks: determined by the generator, annotated, and disjoint from demonstrations."""

import random
from itertools import pairwise

import numpy as np
import pytest

from shipped_weights.phone_vlm_tiny.drawn.exploration_walk import draw_exploration_walk, draw_seek_walk
from shipped_weights.phone_vlm_tiny.drawn.instructed_walk import (
    draw_checked_walk,
    draw_instructed_walk,
    draw_partially_instructed_walk,
)
from shipped_weights.phone_vlm_tiny.drawn.screens import HOME, NO, YES, draw_screen, vocabulary_texts
from shipped_weights.phone_vlm_tiny.drawn.words import any_word, phone_words, train_goals
from shipped_weights.phone_vlm_tiny.settings import DrawnRecipe, DrawnScreenRecipe
from shipped_weights.screens.styles import SIZES
from vlm_agent.datasets.sources.aitw import SUBSETS
from vlm_agent.episodes import Action, element_at
from vlm_agent.sentences.trajectory import swipe_targets
from vlm_agent.simulator import sample_task, split_of
from vlm_agent.simulator.phone import POPUPS

SETTINGS = DrawnRecipe()


def drawn(seed: int):
    return draw_screen(random.Random(seed), SETTINGS)


def test_a_seed_determines_a_screen():
    one, again, other = drawn(1), drawn(1), drawn(2)
    assert np.array_equal(one.step.screenshot, again.step.screenshot)
    assert one.step.elements == again.step.elements
    assert one.switches == again.switches
    assert not np.array_equal(one.step.screenshot, other.step.screenshot)


def test_screens_have_every_size_and_elements_with_names():
    screens = [drawn(seed) for seed in range(60)]
    assert {screen.step.screenshot.shape[:2] for screen in screens} == set(SIZES)
    assert np.mean([len(screen.step.elements) for screen in screens]) > 10
    assert any(screen.switches for screen in screens)


def test_pages_are_full_of_words_and_icons():
    settings = DrawnRecipe(screens=DrawnScreenRecipe(page=1.0, collage=0.0))
    pages = [draw_screen(random.Random(seed), settings) for seed in range(30)]
    counts = [len(page.elements) for page in pages]
    assert np.mean(counts) > 60 and min(counts) > 20
    for page in pages:
        boxes = [element.box for element in page.elements]
        assert all(y >= 0 and x >= 0 and y + h <= 1.05 and x + w <= 1.02 for y, x, h, w in boxes)
    assert {element.type == "TEXT" for page in pages for element in page.elements} == {True, False}


def test_the_shares_of_screens_exclude_each_other():
    with pytest.raises(ValueError, match="the probabilities of screens exclude each other"):
        DrawnScreenRecipe(page=0.6, collage=0.5)


def test_screens_tell_their_states_what_lies_beyond_and_their_app():
    screens = [drawn(seed) for seed in range(240)]
    states = [state for screen in screens for state in screen.switches.items()]
    assert 0.35 < np.mean([on for _, on in states]) < 0.65
    for screen in screens:
        names = [element.name for element in screen.elements]
        assert all(names.count(label) == 1 for label in (*screen.switches, *screen.tabs))
        assert sum(screen.tabs.values()) <= 1
        marked = screen.marked_step.elements[len(names) :]
        assert {mark.name for mark in marked} <= {YES, NO}
        assert len(marked) >= len(screen.switches)
    assert {direction for screen in screens for direction in screen.beyond or ()} == {"up", "down", "left", "right"}
    assert {HOME, "Shop"} <= {screen.app for screen in screens}
    assert any(screen.beyond == frozenset() for screen in screens)


def test_a_seek_walk_swipes_to_an_element_that_its_start_does_not_show_and_taps_it():
    swipes = set()
    for seed in range(40):
        *steps, found, end = draw_seek_walk(random.Random(seed), SETTINGS).steps
        assert {step.action.name for step in steps} == {"swipe"}
        assert (found.action.is_tap, end.action) == (True, Action.complete())
        touched = element_at(found.elements, found.action.touch_yx)
        assert touched.name not in {element.name for element in steps[0].elements}
        swipes |= {step.action.direction for step in steps}
    assert swipes == {"up", "down", "left", "right"}


def test_a_checked_walk_ends_with_complete_only_after_all_that_its_goal_names():
    ends = []
    for seed in range(80):
        walk = draw_checked_walk(random.Random(seed), SETTINGS)
        action, named = walk.steps[-1].action, walk.goal.partition(": ")[2].split(", ")
        ends.append(action.name)
        if walk.goal.startswith("In turn"):
            assert len(named) == len(walk) - (action == Action.complete() or _undoes(walk))
        if _undoes(walk):
            touched = element_at(walk.steps[-2].elements, walk.steps[-2].action.touch_yx)
            assert not walk.goal.endswith((" " + touched.name, f":{touched.name}"))
    assert 15 < ends.count("complete") < 45
    assert {"tap", "back", "type"} < set(ends)


def _undoes(walk) -> bool:
    return walk.steps[-1].action == Action.press("back") and not walk.goal.endswith("back")


def test_an_instructed_walk_names_every_step_and_ends_after_the_last():
    walks = [draw_instructed_walk(random.Random(seed), SETTINGS) for seed in range(80)]
    ordered = {walk.goal.split(": ")[0] for walk in walks}
    assert ordered == {"In turn", "In any order"}
    for walk in walks:
        named = walk.goal.split(": ", 1)[1].split(", ")
        impossible = walk.steps[-1].action == Action.impossible()
        assert impossible or walk.steps[-1].action == Action.complete()
        assert len(named) == len(walk) - (not impossible)
        assert not any(step.action.is_status for step in walk.steps[:-1])
        if walk.goal.startswith("In any order"):
            assert all(step.action.is_tap for step in walk.steps[:-1])
        if impossible:
            shown = " ".join(element.text for element in walk.steps[-1].elements).casefold()
            assert named[-1].casefold() not in shown
    assert 2 <= sum(walk.steps[-1].action == Action.impossible() for walk in walks) <= 20


def test_a_partial_instruction_names_the_last_step_and_typed_text_and_its_walk_never_turns_back():
    walks = [draw_partially_instructed_walk(random.Random(seed), SETTINGS) for seed in range(60)]
    shorter = 0
    for walk in walks:
        kinds = [step.action.name for step in walk.steps]
        assert set(kinds[:-1]) <= {"tap", "type", "enter"}
        assert kinds[-1] == "complete"
        assert all(step.action.text in walk.goal for step in walk.steps if step.action.name == "type")
        named = [step for step in walk.steps[:-1] if step.action.name != "enter"]
        if named[-1].action.is_tap:
            touched = element_at(named[-1].elements, named[-1].action.touch_yx)
            assert touched.name in walk.goal or touched.type.startswith("ICON_")  # an app's name in place of its icon
        shorter += walk.goal.count(" and ") + walk.goal.count(", ") + walk.goal.count(" then ") + 1 < len(named)
    assert shorter > 15


def test_the_goal_of_an_exploration_walk_names_the_last_step_and_typed_text():
    walks = [draw_exploration_walk(random.Random(seed), SETTINGS) for seed in range(80)]
    kinds = [[step.action.name for step in walk.steps] for walk in walks]
    assert {kind for walk in kinds for kind in walk[:-1]} == {"tap", "type", "enter", "home", "swipe"}
    assert all(walk[-1] == "complete" for walk in kinds)
    typed = [(step.action.text, walk) for walk in walks for step in walk.steps if step.action.name == "type"]
    assert all(text.casefold() in walk.goal.casefold() for text, walk in typed)
    found = [
        any(text.casefold() in _shown(step) for step in walk.steps[:-1] if step.action.is_tap) for text, walk in typed
    ]
    assert sum(found) > len(found) / 4


def test_every_swipe_of_an_exploration_walk_changes_the_screen():
    for seed in range(80):
        steps = draw_exploration_walk(random.Random(seed), SETTINGS).steps
        for before, after in pairwise(steps):
            assert before.action.name != "swipe" or before.elements != after.elements


def test_exploration_walks_swipe_for_many_targets_and_their_goals_name_them():
    walks = [draw_exploration_walk(random.Random(seed), SETTINGS) for seed in range(60)]
    found = swiped_for(walks)
    assert len(found) > len(walks) / 3
    for walk, before, after in found:
        touched = element_at(after.elements, after.action.touch_yx)
        if touched.name not in {element.name for element in before.elements} and touched.text:
            assert touched.name in walk.goal
    assert not any(walk.steps[-2].action.name == "swipe" for walk in walks)


def test_exploration_walks_also_swipe_sideways_and_mostly_reveal_their_target():
    walks = [draw_exploration_walk(random.Random(seed), SETTINGS) for seed in range(60)]
    swipes = [step.action.direction for walk in walks for step in walk.steps if step.action.name == "swipe"]
    sideways = [direction for direction in swipes if direction in ("left", "right")]
    assert len(swipes) / 3 < len(sideways) < len(swipes)
    named = [name for walk in walks for name in swipe_targets(walk.steps) if name]
    assert len(named) > len(swipes) / 2


def swiped_for(walks: list) -> list[tuple]:
    """(walk, the step of a swipe, that of the tap which followed)"""
    pairs = [(walk, *pair) for walk in walks for pair in pairwise(walk.steps)]
    return [pair for pair in pairs if pair[1].action.name == "swipe" and pair[2].action.is_tap]


def test_an_exploration_walk_dismisses_a_dialog_first():
    walks = [draw_exploration_walk(random.Random(seed), SETTINGS) for seed in range(80)]
    first = [
        element_at(walk.steps[0].elements, walk.steps[0].action.touch_yx)
        for walk in walks
        if walk.steps[0].action.is_tap
    ]
    dismissals = {popup[3] for popup in POPUPS}
    assert 1 <= sum(touched.name in dismissals for touched in first) <= 15


def _shown(step) -> str:
    touched = element_at(step.elements, step.action.touch_yx)
    return "" if touched is None else touched.text.casefold()


def test_a_seed_determines_an_instructed_walk_and_its_pixels():
    one, again, other = (draw_instructed_walk(random.Random(seed), SETTINGS) for seed in (1, 1, 2))
    assert (one.goal, len(one)) == (again.goal, len(again))
    assert all(np.array_equal(a.screenshot, b.screenshot) for a, b in zip(one.steps, again.steps, strict=True))
    assert one.goal != other.goal


def test_words_are_phone_words_common_words_and_random_letters():
    words = {any_word(random.Random(seed), SETTINGS.words) for seed in range(2000)}
    assert len(words & set(phone_words())) > 150
    assert len(words - set(phone_words())) > 300


def test_vocabulary_goals_are_those_of_the_train_split():
    goals = train_goals()
    assert len(set(goals)) > 2000
    tasks = [sample_task(SUBSETS[number % len(SUBSETS)], "train", number) for number in range(100)]
    assert goals[:100] == tuple(task.goal for task in tasks)
    assert {split_of(task.instance) for task in tasks} == {"train"}


def test_no_walk_has_a_goal_of_a_task():
    """Whatever its split: "Open Notes" may be a goal of a task, "Open: Notes" is none."""
    tasks = {sample_task(SUBSETS[number % 5], ("train", "test")[number % 2], number).goal for number in range(4000)}
    draws = (draw_seek_walk, draw_checked_walk, draw_exploration_walk, draw_partially_instructed_walk)
    goals = {draw(random.Random(seed), SETTINGS).goal for draw in draws for seed in range(50)}
    assert {goal.casefold() for goal in goals}.isdisjoint(task.casefold() for task in tasks)
    assert all(": " in goal for goal in goals)


@pytest.mark.parametrize("word", ["Settings", "Bluetooth", "headphones", "Megamart", "ICON_THREE_DOTS"])
def test_vocabulary_texts_contain_the_phones_words(word, vocabulary):
    assert word in vocabulary


@pytest.fixture(scope="module")
def vocabulary() -> set[str]:
    return set(vocabulary_texts(SETTINGS))
