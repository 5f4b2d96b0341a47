"""The strict verdict forgives neither neighbours nor other texts."""

import math
from dataclasses import replace

import numpy as np
from helpers.evaluation.gold_steps import episode
from helpers.evaluation.strict_rule import strictly_match
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.episodes import Action, UiElement, element_at
from vlm_agent.evaluation.scoring.dialects import verdicts
from vlm_agent.evaluation.scoring.judged import judge_steps
from vlm_agent.evaluation.scoring.strict import taps_match_strictly
from vlm_agent.geometry import TAP_DISTANCE

ROW = UiElement((0.4, 0.0, 0.2, 1.0), "row")
ICON = UiElement((0.45, 0.8, 0.1, 0.1), "icon", "ICON_HEART")

coordinate = st.one_of(st.floats(0, 1), st.integers(0, 20).map(lambda k: k / 20))
point = st.tuples(coordinate, coordinate)
element = st.builds(UiElement, st.tuples(coordinate, coordinate, coordinate, coordinate))


def test_a_tap_in_the_same_element_matches_however_far():
    assert strictly_match(Action.tap(0.5, 0.1), Action.tap(0.5, 0.7), (ROW, ICON))


def test_the_icon_in_the_row_is_not_the_row():
    assert not strictly_match(Action.tap(0.5, 0.85), Action.tap(0.5, 0.78), (ROW, ICON))
    assert not strictly_match(Action.tap(0.5, 0.78), Action.tap(0.5, 0.85), (ROW, ICON))


def test_outside_every_element_the_distance_decides():
    gold = Action.tap(0.1, 0.5)
    assert strictly_match(gold, Action.tap(0.1, 0.53), (ROW,))
    assert not strictly_match(gold, Action.tap(0.1, 0.55), (ROW,))
    assert strictly_match(gold, Action.tap(0.1, 0.5), ())
    assert strictly_match(Action.tap(0.0, 0.5), Action.tap(TAP_DISTANCE, 0.5), ())


def test_outside_the_elements_does_not_match_inside_however_near():
    assert not strictly_match(Action.tap(0.39, 0.5), Action.tap(0.41, 0.5), (ROW,))


def test_text_is_compared_exactly():
    assert strictly_match(Action.type_text("milk"), Action.type_text("milk"), ())
    assert not strictly_match(Action.type_text("milk"), Action.type_text("Milk"), ())


def test_swipes_need_the_direction_and_not_the_place():
    up, down, right = ((0.8, 0.5), (0.2, 0.5)), ((0.2, 0.5), (0.8, 0.5)), ((0.5, 0.2), (0.5, 0.8))
    assert strictly_match(Action.swipe(*up), Action.swipe((0.5, 0.1), (0.3, 0.2)), ())
    assert not strictly_match(Action.swipe(*up), Action.swipe(*down), ())
    assert not strictly_match(Action.swipe(*up), Action.swipe(*right), ())
    assert not strictly_match(Action.swipe(*up), Action.tap(0.8, 0.5), ())


def test_long_presses_need_the_same_element_and_answers_and_apps_the_same_text():
    assert strictly_match(Action.long_press(0.5, 0.1), Action.long_press(0.5, 0.7), (ROW, ICON))
    assert not strictly_match(Action.long_press(0.5, 0.85), Action.long_press(0.5, 0.78), (ROW, ICON))
    assert not strictly_match(Action.long_press(0.5, 0.85), Action.tap(0.5, 0.85), (ROW, ICON))
    for make in (Action.answer, Action.open_app):
        assert strictly_match(make("Clock"), make("Clock"), ())
        assert not strictly_match(make("Clock"), make("clock"), ())
        assert not strictly_match(make("Clock"), Action.type_text("Clock"), ())


def test_other_kinds_match_themselves_only():
    kinds = [Action.press("back"), Action.press("home"), Action.press("enter"), Action.complete(), Action.impossible()]
    kinds += [Action.wait(), Action.recents()]
    for gold in kinds:
        assert [strictly_match(gold, other, ()) for other in kinds] == [other is gold for other in kinds]


def test_no_action_never_matches():
    assert not strictly_match(Action.complete(), None, ())


@settings(max_examples=200, deadline=None)
@given(point, st.lists(point, max_size=6), st.lists(element, max_size=6).map(tuple))
def test_many_taps_at_once_get_the_verdicts_of_one_by_one(gold, taps, elements):
    boxes = np.array([e.box for e in elements], float).reshape(-1, 4)
    matched = taps_match_strictly(np.array(gold), np.array(taps, float).reshape(-1, 2), boxes)
    assert matched.tolist() == [strictly_match(Action.tap(*gold), Action.tap(*tap), elements) for tap in taps]


@settings(max_examples=100, deadline=None)
@given(point, point, st.lists(element, max_size=6).map(tuple))
def test_the_definition_word_for_word(gold, tap, elements):
    under_gold, under_tap = element_at(elements, gold), element_at(elements, tap)
    if under_gold is None:
        expected = under_tap is None and math.dist(gold, tap) <= TAP_DISTANCE
    else:
        expected = under_gold is under_tap
    assert strictly_match(Action.tap(*gold), Action.tap(*tap), elements) == expected


def test_typed_text_is_compared_in_nfc():
    gold, composed, other = map(Action.type_text, ("cafe\u0301", "caf\u00e9", "cafe"))
    assert strictly_match(gold, composed, ())
    assert not strictly_match(gold, other, ())
    (row,) = episode("1", "general", [gold])
    rows = [replace(row, predicted=predicted) for predicted in (composed, other)]
    assert [verdicts([row])["strict"].tolist() for row in rows] == [[True], [False]]
    assert [judge_steps([row]).same_text.tolist() for row in rows] == [[True], [False]]
