"""One rule for one action and for a column of actions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.episodes import Action
from vlm_agent.geometry import DIRECTIONS, are_taps, box_at, boxes_at, contains, directions, distance, place_of_box

grid = st.integers(0, 25).map(lambda k: k / 25)  # ties and exact thresholds
coordinate = st.one_of(st.floats(0, 1, width=32), grid)
point = st.tuples(coordinate, coordinate)
box = st.tuples(coordinate, coordinate, coordinate, coordinate)


@given(st.lists(st.tuples(point, point), max_size=8))
def test_arrays_of_gestures_are_taps_and_swipes_like_single_actions(gestures):
    touch, lift = np.array(gestures, np.float64).reshape(-1, 2, 2).transpose(1, 0, 2)
    actions = [Action.swipe(*gesture) for gesture in gestures]
    assert are_taps(touch, lift).tolist() == [action.is_tap for action in actions]
    found = [DIRECTIONS[index] for index in directions(touch, lift)]
    swipes = [(name, action.direction) for name, action in zip(found, actions, strict=True) if action.is_swipe]
    assert all(name == direction for name, direction in swipes)


@settings(deadline=None)
@given(st.lists(st.tuples(point, st.lists(box, max_size=6)), max_size=5))
def test_the_smallest_box_of_each_screen_is_that_of_one_screen_at_a_time(screens):
    points = np.array([touch for touch, _ in screens], np.float64).reshape(-1, 2)
    boxes = np.array([box for _, listed in screens for box in listed], np.float64).reshape(-1, 4)
    counts = [len(listed) for _, listed in screens]
    found = boxes_at(points, boxes, np.repeat(np.arange(len(screens)), counts))
    starts = np.cumsum([0, *counts])
    for index, start, (touch, listed) in zip(found.tolist(), starts.tolist(), screens, strict=False):
        expected = box_at(listed, touch)
        assert index == (-1 if expected is None else start + expected)


@pytest.mark.parametrize(
    ("y", "x", "expected"),
    [
        (0.125, 0.5, 0.125),
        (0.75, 0.5, 0.25),
        (0.375, 0.125, 0.125),
        (0.375, 1.0, 0.25),
        (1.0, 0.0, 0.5),
        (0.25, 0.5, 0.0),
        (0.375, 0.5, -0.125),
    ],
    ids=["above", "below", "left", "right", "diagonal", "on the edge", "inside"],
)
def test_the_distance_to_a_box_is_the_larger_of_both_axes_and_negative_inside(y, x, expected):
    assert distance((0.25, 0.25, 0.25, 0.5), (y, x)) == expected


def test_the_first_of_equally_small_boxes_is_touched():
    boxes = [(0, 0, 1, 1), (0.25, 0.25, 0.5, 0.5), (0.25, 0.25, 0.5, 0.5)]
    assert box_at(boxes, (0.5, 0.5)) == 1
    assert boxes_at(np.array([[0.5, 0.5]]), np.array(boxes), np.zeros(3, int)).tolist() == [1]
    assert contains(boxes[1], (0.75, 0.25))


def test_a_place_of_a_partly_covered_box_lies_between_the_boxes_over_it():
    beside = [(0.2, 0.2, 0.6, 0.6), (0.3, 0.2, 0.4, 0.5)]  # free: the strips above, below, and on the right
    above = [(0.2, 0.2, 0.6, 0.6), (0.2, 0.3, 0.5, 0.4)]
    for boxes in (beside, above):
        place = place_of_box(boxes, 0)
        assert place is not None and box_at(boxes, place) == 0


@settings(deadline=None)
@given(st.lists(st.tuples(grid, grid, grid, grid), min_size=1, max_size=5))
def test_a_box_that_is_not_covered_has_a_place(boxes):
    """A grid of points between the edges finds every visible part."""
    middles = [(k + 0.5) / 50 for k in range(50)]
    for index, (top, left, height, width) in enumerate(boxes):
        place = place_of_box(boxes, index)
        inside = [(y, x) for y in middles if top < y < top + height for x in middles if left < x < left + width]
        if any(box_at(boxes, point) == index for point in inside):
            assert place is not None and box_at(boxes, place) == index
