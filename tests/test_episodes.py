"""The nouns refuse what cannot be, and draw AITW's lines where AITW draws them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.episodes import (
    ACTION_NAMES,
    KINDS_WITH_TEXT,
    KINDS_WITH_TOUCH,
    NO_POINT,
    Action,
    ActionKind,
    Episode,
    Screen,
    Step,
    UiElement,
    element_at,
    is_black,
    is_same_screen,
    shown_action_names,
)
from vlm_agent.geometry import TAP_DISTANCE, aitw_distance

fractions = st.floats(0, 1)
points = st.tuples(fractions, fractions)


@pytest.mark.parametrize(
    "point", [(-0.01, 0.5), (0.5, 1.01), (math.nan, 0.5), (0.5, math.inf), (0.5,), (0.1, 0.2, 0.3)]
)
def test_a_gesture_needs_two_points_on_the_screen(point):
    with pytest.raises(ValueError, match="touch_yx"):
        Action(ActionKind.DUAL_POINT, point, (0.5, 0.5))
    with pytest.raises(ValueError, match="lift_yx"):
        Action(ActionKind.DUAL_POINT, (0.5, 0.5), point)


@pytest.mark.parametrize("kind", [kind for kind in ActionKind if kind not in KINDS_WITH_TOUCH])
def test_only_a_gesture_has_points(kind):
    with pytest.raises(ValueError, match="no points"):
        Action(kind, (0.5, 0.5), (0.5, 0.5))
    with pytest.raises(ValueError, match="no points"):
        Action(kind, (0.5, 0.5))
    assert Action(kind).touch_yx == NO_POINT


@pytest.mark.parametrize("kind", [kind for kind in ActionKind if kind not in KINDS_WITH_TEXT])
def test_only_typing_opening_and_answering_have_text(kind):
    touch = (0.5, 0.5) if kind in KINDS_WITH_TOUCH else NO_POINT
    lift = (0.5, 0.5) if kind is ActionKind.DUAL_POINT else NO_POINT
    with pytest.raises(ValueError, match="no text"):
        Action(kind, touch, lift, "hello")


def test_a_long_press_has_a_touch_point_on_the_screen_and_no_lift_point():
    assert Action.long_press(0.25, 0.5) == Action(ActionKind.LONG_PRESS, (0.25, 0.5), NO_POINT)
    with pytest.raises(ValueError, match="touch_yx"):
        Action(ActionKind.LONG_PRESS)
    with pytest.raises(ValueError, match="lift_yx"):
        Action(ActionKind.LONG_PRESS, (0.25, 0.5), (0.25, 0.5))
    assert not Action.long_press(0.25, 0.5).is_tap
    assert Action.long_press(0.25, 0.5).direction is None


def test_kinds_keep_aitws_numbers_and_later_ones_use_numbers_that_aitw_never_uses():
    assert {int(kind) for kind in ActionKind if kind.is_in_aitw} == {3, 4, 5, 6, 7, 10, 11}
    assert [int(kind) for kind in ActionKind if not kind.is_in_aitw] == [100, 101, 102, 103, 104]


def test_text_that_no_file_can_hold_is_refused():
    with pytest.raises(ValueError, match="Unicode"):
        Action.type_text("\ud800")


def test_typing_nothing_is_an_action():
    assert Action.type_text("").kind is ActionKind.TYPE


def test_a_kind_that_aitw_does_not_have_is_refused():
    with pytest.raises(ValueError, match="6000"):
        Action(6000)


def test_numbers_become_kinds_and_array_points_become_tuples():
    action = Action(4, np.array([0.25, 0.5], np.float32), [1, 0])
    assert action == Action(ActionKind.DUAL_POINT, (0.25, 0.5), (1.0, 0.0))
    assert hash(action) == hash(Action.swipe((0.25, 0.5), (1.0, 0.0)))


def test_an_action_cannot_be_changed():
    with pytest.raises(AttributeError):
        Action.complete().text = "x"


def test_a_gesture_of_four_hundredths_is_a_tap_and_a_longer_one_a_swipe():
    assert Action.swipe((0.0, 0.5), (TAP_DISTANCE, 0.5)).is_tap
    assert Action.swipe((0.0, 0.5), (np.nextafter(np.float32(TAP_DISTANCE), np.float32(1)), 0.5)).is_swipe


def test_a_diagonal_counts_by_its_length():
    side = TAP_DISTANCE / math.sqrt(2)
    assert Action.swipe((0.5, 0.5), (0.5 + side * 0.99, 0.5 + side * 0.99)).is_tap
    assert Action.swipe((0.5, 0.5), (0.5 + side * 1.01, 0.5 + side * 1.01)).is_swipe


@given(points, points)
def test_every_gesture_is_either_a_tap_or_a_swipe(touch, lift):
    gesture = Action.swipe(touch, lift)
    assert gesture.is_tap != gesture.is_swipe
    assert (gesture.direction is None) == gesture.is_tap
    assert gesture.name == ("tap" if gesture.is_tap else "swipe")


@pytest.mark.parametrize(
    ("lift", "direction"),
    [
        ((0.2, 0.5), "up"),
        ((0.8, 0.5), "down"),
        ((0.5, 0.2), "left"),
        ((0.5, 0.8), "right"),
        ((0.75, 0.75), "down"),
        ((0.25, 0.75), "up"),
        ((0.75, 0.25), "down"),
        ((0.25, 0.25), "up"),
        ((0.75, 0.7501), "right"),
    ],
)
def test_a_swipe_goes_along_its_longer_axis_and_ties_go_to_the_vertical(lift, direction):
    assert Action.swipe((0.5, 0.5), lift).direction == direction


def test_only_swipes_have_a_direction():
    assert Action.tap(0.5, 0.5).direction is None
    assert Action.press("home").direction is None


def test_names_are_the_action_mix():
    gestures = [Action.tap(0, 0), Action.swipe((0, 0), (1, 1)), Action.type_text("x")]
    buttons = [Action.press(button) for button in ("back", "home", "enter")]
    later = [Action.long_press(0, 0), Action.open_app("x"), Action.wait(), Action.recents(), Action.answer("x")]
    actions = [*gestures, *buttons, Action.complete(), Action.impossible(), *later]
    assert tuple(action.name for action in actions) == ACTION_NAMES
    assert ACTION_NAMES[:8] == ("tap", "swipe", "type", "back", "home", "enter", "complete", "impossible")


def test_tables_show_aitws_names_and_those_of_the_others_that_occur():
    assert shown_action_names(()) == ACTION_NAMES[:8]
    assert shown_action_names({"answer", "tap", "wait"}) == (*ACTION_NAMES[:8], "wait", "answer")


def test_only_the_two_status_actions_end_an_episode():
    assert [kind.name for kind in ActionKind if kind not in KINDS_WITH_TOUCH and Action(kind).is_status] == [
        "STATUS_TASK_COMPLETE",
        "STATUS_TASK_IMPOSSIBLE",
    ]
    assert not Action.tap(0.5, 0.5).is_status


def test_the_touched_element_is_the_smallest_that_contains_the_point():
    row = UiElement((0.1, 0.0, 0.2, 1.0), "Wi-Fi")
    icon = UiElement((0.15, 0.8, 0.1, 0.1), type="ICON_SETTINGS")
    assert element_at((row, icon), (0.2, 0.85)) is icon
    assert element_at((icon, row), (0.2, 0.85)) is icon
    assert element_at((row, icon), (0.2, 0.1)) is row
    assert element_at((row, icon), (0.5, 0.5)) is None
    assert element_at((), (0.5, 0.5)) is None


def test_an_elements_edges_belong_to_it():
    element = UiElement((0.25, 0.25, 0.5, 0.5))
    assert all(element.contains((y, x)) for y in (0.25, 0.75) for x in (0.25, 0.75))
    assert not element.contains((0.2499, 0.5))
    assert element.centre_yx == (0.5, 0.5)


@pytest.mark.parametrize(
    ("rows", "columns", "is_same"),
    [
        (slice(0, 8), slice(None), True),  # the clock
        (slice(50, 53), slice(0, 1), True),  # a cursor
        (slice(50, 54), slice(0, 4), False),  # a check box
    ],
)
def test_clock_and_cursor_leave_a_screen_as_it_was_but_a_check_box_does_not(rows, columns, is_same):
    before = np.zeros((200, 100, 3), np.uint8)
    after = before.copy()
    after[rows, columns] = 200
    assert is_same_screen(Screen(before), Screen(after)) is is_same_screen(Screen(after), Screen(before)) is is_same


def test_screens_of_other_sizes_differ_and_noise_of_compression_is_no_change():
    grey = np.full((40, 20, 3), 128, np.uint8)
    assert is_same_screen(Screen(grey), Screen(grey + 24)) and not is_same_screen(Screen(grey), Screen(grey + 25))
    assert not is_same_screen(Screen(grey), Screen(grey[:39]))


def test_screens_without_pixels_are_compared_by_their_elements():
    shown = Screen(None, (UiElement((0, 0, 1, 1), "Wi-Fi"),))
    assert is_same_screen(shown, replace(shown)) and not is_same_screen(shown, Screen(None, ()))
    assert not is_same_screen(shown, replace(shown, pixels=np.zeros((40, 20, 3), np.uint8)))


def test_a_step_without_pixels_has_no_size_and_an_episode_is_as_long_as_its_steps():
    step = Step(np.zeros((4, 2, 3), np.uint8), Action.complete())
    assert step.size == (4, 2)
    assert len(Episode("1", "general", "go", (step, step))) == 2


@given(points, points)
def test_the_matchers_distance_is_the_distance_to_float32(a, b):
    assert aitw_distance(a, b) == pytest.approx(math.dist(a, b), abs=1e-6)
    assert aitw_distance(np.array([a, b]), np.array([b, a])).tolist() == [aitw_distance(a, b)] * 2


def test_a_screen_is_black_whatever_the_bars_of_the_system_show():
    black = np.zeros((280, 130, 3), np.uint8)
    assert is_black(black)
    bars = black.copy()
    bars[:20] = bars[-20:] = 200
    assert is_black(bars)
    assert is_black(black + 2)
    for row in (20, 140, 259):
        shown = bars.copy()
        shown[row, 5, 1] = 3
        assert not is_black(shown)
