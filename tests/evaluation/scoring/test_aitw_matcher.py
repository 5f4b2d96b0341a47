"""The matcher's verdicts are the official ones."""

import gzip
import json

import numpy as np
import pytest
from helpers.evaluation.matcher_batch import batch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.episodes import Action, ActionKind
from vlm_agent.evaluation.scoring.aitw_matcher import BOX_GROWTH, MATCH_DISTANCE, actions_match
from vlm_agent.geometry import TAP_DISTANCE

TAP, TYPE, COMPLETE = ActionKind.DUAL_POINT, ActionKind.TYPE, ActionKind.STATUS_TASK_COMPLETE
f32 = np.float32


def literal_match(touch_1, lift_1, type_1, touch_2, lift_2, type_2, boxes):
    """One pair at a time, written down as the official code reads, one float32 operation after the other."""

    def length(a, b):
        dy, dx = f32(a[0]) - f32(b[0]), f32(a[1]) - f32(b[1])
        return np.sqrt(f32(float(dy) ** 2 + float(dx * dx)))

    def axis(touch, lift):
        dy, dx = abs(f32(lift[0]) - f32(touch[0])), abs(f32(lift[1]) - f32(touch[1]))
        return 1 if not np.isnan(dy) and (np.isnan(dx) or dx > dy) else 0

    def inside(point, box):
        y, x, height, width = (f32(value) for value in box)
        more_height, more_width = f32(BOX_GROWTH) * height, f32(BOX_GROWTH) * width
        top, left = np.maximum(f32(0), y - more_height / f32(2)), np.maximum(f32(0), x - more_width / f32(2))
        bottom = top + np.minimum(f32(1), height + more_height)
        right = left + np.minimum(f32(1), width + more_width)
        return top <= point[0] <= bottom and left <= point[1] <= right

    if type_1 != TAP or type_2 != TAP:
        return type_1 == type_2
    is_tap_1, is_tap_2 = length(touch_1, lift_1) <= f32(TAP_DISTANCE), length(touch_2, lift_2) <= f32(TAP_DISTANCE)
    if is_tap_1 != is_tap_2:
        return False
    if not is_tap_1:
        return axis(touch_1, lift_1) == axis(touch_2, lift_2)
    if length(touch_1, touch_2) <= f32(MATCH_DISTANCE):
        return True
    return any(inside(touch_1, box) and inside(touch_2, box) for box in boxes)


def pair(touch_1, touch_2, boxes=(), lift_1=None, lift_2=None, type_1=TAP, type_2=TAP):
    return {
        "touch_1": touch_1,
        "lift_1": lift_1 or touch_1,
        "touch_2": touch_2,
        "lift_2": lift_2 or touch_2,
        "type_1": int(type_1),
        "type_2": int(type_2),
        "boxes": boxes,
    }


def verdict(*args, **kwargs):
    return bool(actions_match(**batch([pair(*args, **kwargs)]))[0])


def any_float(least, most):
    # Round numbers land on thresholds and edges; odd ones are what no screen has.
    return st.one_of(
        st.floats(least, most, width=32),
        st.integers(0, 50).map(lambda k: float(f32(k / 50))),
        st.sampled_from([float("nan"), float("inf"), float("-inf"), -1.0, 2.0]),
    )


coordinate = any_float(0, 1)
point = st.tuples(coordinate, coordinate)
box = st.tuples(coordinate, coordinate, any_float(0, 0.5), any_float(0, 0.5))


@st.composite
def any_pair(draw):
    touch_1, touch_2 = draw(point), draw(point)
    kind = st.sampled_from([TAP, TAP, TAP, TYPE, COMPLETE])
    return pair(
        touch_1,
        touch_2,
        boxes=draw(st.lists(box, max_size=4)),
        lift_1=draw(st.one_of(st.just(touch_1), point)),
        lift_2=draw(st.one_of(st.just(touch_2), point)),
        type_1=draw(kind),
        type_2=draw(kind),
    )


any_pairs = st.lists(any_pair(), max_size=12)


def test_all_golden_verdicts_agree(shared):
    with gzip.open(shared / "data/golden/aitw_matcher.jsonl.gz", "rt") as lines:
        cases = [json.loads(line) for line in lines]
    assert len(cases) == 3000
    expected = np.array([case["match"] for case in cases])
    wrong = np.flatnonzero(actions_match(**batch(cases)) != expected)
    assert not len(wrong), [cases[row] for row in wrong[:3]]


def test_golden_verdicts_do_not_depend_on_the_order_of_the_two_actions(shared):
    with gzip.open(shared / "data/golden/aitw_matcher.jsonl.gz", "rt") as lines:
        arrays = batch([json.loads(line) for line in lines])
    assert (actions_match(**arrays) == actions_match(**swapped(arrays))).all()


def swapped(arrays):
    other = {"1": "2", "2": "1"}
    return {key[:-1] + other[key[-1]] if key[-1] in other else key: value for key, value in arrays.items()}


@settings(max_examples=200, deadline=None)
@given(any_pairs)
def test_equals_the_literal_loop(pairs):
    with np.errstate(all="ignore"):
        expected = [literal_match(**p) for p in pairs]
    assert actions_match(**batch(pairs)).tolist() == expected


@settings(max_examples=100, deadline=None)
@given(any_pairs)
def test_is_symmetric(pairs):
    arrays = batch(pairs)
    assert (actions_match(**arrays) == actions_match(**swapped(arrays))).all()


@settings(max_examples=100, deadline=None)
@given(any_pairs, st.sampled_from([0.0, 0.5, float("nan"), float("inf"), -1.0]), st.integers(0, 5))
def test_padding_never_changes_a_verdict(pairs, junk, extra):
    assert (actions_match(**batch(pairs)) == actions_match(**batch(pairs, pad_with=junk, extra=extra))).all()


@settings(max_examples=100, deadline=None)
@given(st.lists(any_pair(), min_size=1, max_size=6))
def test_rows_are_judged_alone(pairs):
    together = actions_match(**batch(pairs))
    assert together.tolist() == [actions_match(**batch([p]))[0] for p in pairs]


def test_more_rows_than_one_block_are_all_judged():
    rng = np.random.default_rng(0)
    n, m = 3000, 60
    touches, other = rng.random((2, n, 2)).astype(f32)
    boxes = (rng.random((n, m, 4)) * 0.3).astype(f32)
    counts = rng.integers(0, m + 1, n)
    taps = np.full(n, int(TAP))
    matched = actions_match(touches, touches, taps, other, other, taps, boxes, counts)
    rows = rng.choice(n, 200, replace=False)
    expected = [
        literal_match(touches[r], touches[r], TAP, other[r], other[r], TAP, boxes[r, : counts[r]]) for r in rows
    ]
    assert matched[rows].tolist() == expected


def test_verdicts_are_the_same_however_the_arrays_lie_in_memory():
    rng = np.random.default_rng(1)
    touches, other = rng.random((2, 500, 2)).astype(f32)
    boxes, counts, taps = (rng.random((500, 7, 4)) * 0.3).astype(f32), rng.integers(0, 8, 500), np.full(500, int(TAP))
    expected = actions_match(touches, touches, taps, other, other, taps, boxes, counts)
    turned, apart = np.asfortranarray(boxes), np.repeat(touches, 2, axis=1)[:, ::2]
    small = taps.astype(np.uint8)
    assert (actions_match(apart, apart, small, other, other, taps, turned, counts.astype(np.int8)) == expected).all()
    one_screen = np.broadcast_to(boxes[0], boxes.shape)
    full = np.full(500, 7)
    expected = actions_match(touches, touches, taps, other, other, taps, one_screen.copy(), full)
    assert (actions_match(touches, touches, taps, other, other, taps, one_screen, full) == expected).all()
    assert 0 < expected.sum() < 500


def test_no_pairs_and_no_boxes():
    assert actions_match(**batch([])).shape == (0,)
    assert actions_match(**batch([])).dtype == bool
    assert verdict((0.5, 0.5), (0.6, 0.5))
    assert not verdict((0.5, 0.5), (0.7, 0.5))


def test_a_padded_row_without_boxes_is_decided_by_distance():
    row = batch([pair((0.1, 0.1), (0.4, 0.1), boxes=[(0.0, 0.0, 1.0, 1.0)])])
    assert actions_match(**row).all()
    assert not actions_match(**{**row, "box_counts": np.array([0])}).any()


def test_a_box_cut_at_the_top_reaches_further_down():
    box_at_the_top = [(0.0, 0.0, 0.2, 1.0)]  # enlarged: top 0 (not -0.14), height 0.48
    assert verdict((0.01, 0.5), (0.47, 0.5), box_at_the_top)
    assert not verdict((0.01, 0.5), (0.49, 0.5), box_at_the_top)


def test_actions_and_matcher_agree_on_which_gestures_are_taps():
    rng = np.random.default_rng(2)
    touch = rng.random((3000, 2)) * 0.9 + 0.05
    angle = rng.random(3000) * 2 * np.pi
    lift = touch + TAP_DISTANCE * np.stack([np.sin(angle), np.cos(angle)], axis=1)  # at the threshold, up to rounding
    dual, none = np.full(3000, int(TAP)), np.zeros(3000, int)
    as_taps = actions_match(touch, lift, dual, touch, touch, dual, np.zeros((3000, 0, 4), f32), none)
    actions = [Action.swipe(tuple(a), tuple(b)) for a, b in zip(touch.tolist(), lift.tolist(), strict=True)]
    assert [action.is_tap for action in actions] == as_taps.tolist()
    assert 0 < as_taps.sum() < 3000


def test_both_taps_must_be_in_the_same_box():
    left, right = (0.5, 0.1, 0.02, 0.1), (0.5, 0.8, 0.02, 0.1)
    assert not verdict((0.51, 0.15), (0.51, 0.85), [left, right])
    assert verdict((0.51, 0.15), (0.51, 0.85), [left, right, (0.5, 0.1, 0.02, 0.8)])


def test_a_diagonal_swipe_is_vertical():
    diagonal, down, right = (0.7, 0.7), (0.9, 0.5), (0.5, 0.9)
    assert verdict((0.5, 0.5), (0.5, 0.5), lift_1=diagonal, lift_2=down)
    assert not verdict((0.5, 0.5), (0.5, 0.5), lift_1=diagonal, lift_2=right)


def test_a_swipe_up_matches_a_swipe_down_but_no_tap():
    assert verdict((0.5, 0.5), (0.5, 0.5), lift_1=(0.9, 0.5), lift_2=(0.1, 0.5))
    assert not verdict((0.5, 0.5), (0.5, 0.5), lift_1=(0.9, 0.5))


def test_typed_actions_match_whatever_their_points():
    assert verdict((-1.0, -1.0), (0.3, 0.3), type_1=TYPE, type_2=TYPE)
    assert not verdict((0.3, 0.3), (0.3, 0.3), type_1=TYPE)


def test_nan_taps_are_vertical_swipes():
    nan = (float("nan"), 0.5)
    assert not verdict(nan, (0.5, 0.5), [(0.0, 0.0, 1.0, 1.0)])
    assert verdict(nan, (0.5, 0.5), lift_2=(0.9, 0.5))


def test_points_off_the_screen_are_compared_like_others():
    assert verdict((1.5, 0.5), (1.6, 0.5))
    assert not verdict((1.5, 0.5), (1.7, 0.5))
    infinite = (float("inf"), 0.5)
    assert not verdict(infinite, (0.5, 0.5), [(0.0, 0.0, 1.0, 1.0)])


def test_an_infinite_box_is_cut_to_the_screen_and_a_nan_box_holds_nothing():
    far_apart = ((0.2, 0.5), (0.9, 0.5))
    assert verdict(*far_apart, [(0.3, 0.0, float("inf"), 1.0)])
    assert not verdict(*far_apart, [(0.0, 0.0, float("nan"), 1.0)])


def test_float64_points_are_rounded_first():
    arrays = batch([pair((0.0, 0.0), (0.0, 0.14))])
    arrays["touch_2"] = arrays["lift_2"] = np.array([[0.0, 0.14]], np.float64)
    assert actions_match(**arrays).all()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("touch_2", np.zeros((2, 2), f32), "touch_2"),
        ("type_1", np.zeros((1, 1), int), "type_1"),
        ("boxes", np.zeros((1, 4), f32), "boxes"),
        ("boxes", np.zeros((1, 3, 5), f32), "boxes"),
        ("box_counts", np.array([1]), r"box_counts\[0\] is 1"),
        ("box_counts", np.array([-1]), r"box_counts\[0\] is -1"),
    ],
)
def test_shapes_that_disagree_are_refused_by_name(key, value, message):
    arrays = batch([pair((0.1, 0.1), (0.2, 0.2))])
    with pytest.raises(ValueError, match=message):
        actions_match(**{**arrays, key: value})
