"""Dialects differ as their sources state, and judge tables as their references judge single steps."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from helpers.evaluation.gold_steps import answered, episode
from helpers.evaluation.matcher_batch import batch
from helpers.evaluation.strict_rule import strictly_match
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.episodes import ACTION_NAMES, KINDS_WITH_TOUCH, Action, ActionKind, UiElement
from vlm_agent.errors import UserError
from vlm_agent.evaluation.scoring.aitw_matcher import actions_match
from vlm_agent.evaluation.scoring.dialects import AITW, describe_scorers, verdicts
from vlm_agent.evaluation.scoring.judged import judge_steps
from vlm_agent.evaluation.scoring.steps import Actions, Boxes, StepTable

UP, DOWN, LEFT = (
    Action.swipe(*points) for points in (((0.8, 0.5), (0.2, 0.5)), ((0.2, 0.5), (0.8, 0.5)), ((0.5, 0.8), (0.5, 0.2)))
)
EITHER_END = {"agentcpm", "coat_point", "coat_box"}
BUTTON = UiElement((0.40, 0.40, 0.10, 0.20))
BAR = UiElement((0.0, 0.0, 0.05, 1.0))

coordinate = st.one_of(st.floats(0, 1), st.integers(0, 25).map(lambda k: k / 25))
point = st.tuples(coordinate, coordinate)
elements = st.lists(st.builds(UiElement, st.tuples(coordinate, coordinate, coordinate, coordinate)), max_size=6)
text = st.sampled_from(["milk", "Milk ", "buy milk", ""])
action = st.one_of(
    st.builds(lambda at: Action.tap(*at), point),
    st.builds(Action.swipe, point, point),
    st.builds(Action.type_text, text),
    st.builds(lambda at: Action.long_press(*at), point),
    st.builds(Action.open_app, text),
    st.builds(Action.answer, text),
    st.sampled_from([Action.press("back"), Action.press("enter"), Action.complete(), Action.impossible()]),
    st.sampled_from([Action.wait(), Action.recents()]),
)
steps = st.lists(st.tuples(action, st.one_of(st.none(), action), elements), max_size=12)


def predictions(triples):
    return [
        row
        for number, (gold, prediction, on_screen) in enumerate(triples)
        for row in answered(episode(str(number), "single", [gold], tuple(on_screen)), [prediction])
    ]


def right(name, gold, prediction, *on_screen):
    return bool(verdicts(predictions([(gold, prediction, on_screen)]), [name])[name][0])


def accepted(gold, prediction, *on_screen):
    return {name for name in AITW if right(name, gold, prediction, *on_screen)}


@settings(max_examples=200, deadline=None)
@given(steps)
def test_strict_on_a_table_is_strict_step_by_step(triples):
    rows = predictions(triples)
    expected = [strictly_match(row.gold, row.predicted, row.elements) for row in rows]
    assert verdicts(rows, ["strict"])["strict"].tolist() == expected


@settings(max_examples=200, deadline=None)
@given(steps)
def test_official_on_a_table_is_the_matcher(triples):
    rows = predictions(
        [(gold, prediction, on_screen) for gold, prediction, on_screen in triples if prediction is not None]
    )
    pairs = [
        {
            **{f"touch_{n}": a.touch_yx for n, a in ((1, row.gold), (2, row.predicted))},
            **{f"lift_{n}": a.lift_yx for n, a in ((1, row.gold), (2, row.predicted))},
            **{f"type_{n}": int(a.kind) for n, a in ((1, row.gold), (2, row.predicted))},
            "boxes": [element.box for element in row.elements],
        }
        for row in rows
    ]
    assert verdicts(rows, ["official"])["official"].tolist() == actions_match(**batch(pairs)).tolist()


def test_official_on_a_table_gives_all_golden_verdicts(shared):
    with gzip.open(shared / "data/golden/aitw_matcher.jsonl.gz", "rt") as lines:
        cases = [json.loads(line) for line in lines]
    actions, no_box = (columns(cases, n) for n in "12"), np.full((len(cases), 4), np.nan)
    boxes, size = golden_boxes(cases), np.zeros((len(cases), 2), np.int64)
    texts = pa.array([""] * len(boxes.values))
    table = StepTable(None, None, np.zeros(len(cases)), None, *actions, no_box, size, None, boxes, texts, texts)
    assert verdicts(table, ["official"])["official"].tolist() == [case["match"] for case in cases]


def columns(cases, which):
    kind, touch, lift = (np.array([case[f"{name}_{which}"] for case in cases]) for name in ("type", "touch", "lift"))
    return Actions(kind.astype(np.int8), touch, lift, pa.array([""] * len(kind)))


def golden_boxes(cases):
    counts = np.array([len(case["boxes"]) for case in cases])
    return Boxes(np.array([box for case in cases for box in case["boxes"]]), np.cumsum(counts) - counts, counts)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_dialects_that_only_add_a_condition_never_accept_what_official_rejects(triples):
    matched = verdicts(predictions(triples), list(AITW))
    for name in ("official_text", "official_direction", "official_factor"):
        assert not (matched[name] & ~matched["official"]).any()


@settings(max_examples=100, deadline=None)
@given(steps)
def test_no_dialect_accepts_a_missing_action_or_another_kind_of_action(triples):
    rows = predictions(triples)
    for name, matched in verdicts(rows, list(AITW)).items():
        for row, is_right in zip(rows, matched, strict=True):
            if is_right and not (name in EITHER_END and row.gold.is_status):
                assert row.predicted.name == row.gold.name


def test_all_dialects_accept_the_gold_action_itself():
    for gold in (Action.tap(0.45, 0.5), UP, Action.type_text("milk"), Action.press("home"), Action.complete()):
        assert accepted(gold, gold, BUTTON) == set(AITW)


def test_typed_text_is_compared_by_some():
    gold = Action.type_text("milk")
    assert accepted(gold, Action.type_text("bread")) == {
        "official",
        "official_direction",
        "official_factor",
        "five_points",
        "d_pot",
    }
    assert accepted(gold, Action.type_text(" Fresh MILK")) == set(AITW) - {"strict", "coat_point", "coat_box"}


def test_only_the_predicted_text_is_stripped_by_auto_ui():
    assert right("agentcpm", Action.type_text(" milk"), Action.type_text("fresh milk"))
    assert right("official_text", Action.type_text(" milk"), Action.type_text("fresh milk"))
    for name in ("official_text", "agentcpm", "coat_point"):
        for empty in ("", " "):
            assert not right(name, Action.type_text("milk and bread"), Action.type_text(empty)), name
            assert not right(name, Action.type_text(empty), Action.type_text("milk and bread")), name
            assert right(name, Action.type_text(empty), Action.type_text("")), name
    assert right("agentcpm", Action.type_text("milk "), Action.type_text("milk now"))
    assert right("official_text", Action.type_text("milk "), Action.type_text("milk now"))
    assert right("agentcpm", Action.type_text(" milk"), Action.type_text("milk and bread"))
    assert not right("official_text", Action.type_text(" milk"), Action.type_text("milk and bread"))


def test_swipes_count_by_axis_or_by_direction():
    assert accepted(UP, DOWN) == {"official", "official_text", "official_factor"}
    assert accepted(UP, LEFT) == set()
    assert accepted(UP, Action.swipe((0.9, 0.1), (0.5, 0.2))) == set(AITW)


def test_boxes_grow_by_what_is_added_or_by_the_factor():
    wide = UiElement((0.4, 0.3, 0.1, 0.3))
    gold, prediction = Action.tap(0.45, 0.45), Action.tap(0.45, 0.64)  # 0.19 apart; the element ends at 0.60
    assert right("official", gold, prediction, wide)  # ends at 0.81
    assert right("official_factor", gold, prediction, wide)  # ends at 0.66
    assert not right("agentcpm", gold, prediction, wide)  # ends at 0.63
    assert not right("official_factor", gold, Action.tap(0.45, 0.67), wide)


def test_the_tapped_element_decides_by_its_five_points():
    tall = UiElement((0.2, 0.4, 0.5, 0.2))
    assert right("five_points", Action.tap(0.6, 0.5), Action.tap(0.21, 0.5), tall)  # the gold tap is in it
    assert right("five_points", Action.tap(0.83, 0.6), Action.tap(0.21, 0.5), tall)  # 0.13 from a corner
    assert right("five_points", Action.tap(0.5, 0.39), Action.tap(0.21, 0.5), tall)  # 0.121 from the centre
    assert not right("five_points", Action.tap(0.56, 0.3), Action.tap(0.21, 0.5), tall)  # far from all five
    assert right("official", Action.tap(0.56, 0.3), Action.tap(0.21, 0.5), tall)


def test_a_tap_on_no_element_is_compared_itself():
    assert right("five_points", Action.tap(0.8, 0.8), Action.tap(0.9, 0.8), BUTTON)
    assert not right("five_points", Action.tap(0.75, 0.8), Action.tap(0.9, 0.8), BUTTON)


def test_the_smallest_element_under_the_tap_is_the_tapped_one():
    screen = UiElement((0.0, 0.0, 1.0, 1.0))
    assert not right("five_points", Action.tap(0.9, 0.9), Action.tap(0.45, 0.5), screen, BUTTON)
    assert right("five_points", Action.tap(0.9, 0.9), Action.tap(0.6, 0.8), screen, BUTTON)


def test_any_point_of_the_tapped_element_decides_by_the_official_rule_in_d_pot():
    tall = UiElement((0.2, 0.4, 0.5, 0.2))
    assert right("d_pot", Action.tap(0.6, 0.5), Action.tap(0.21, 0.5), tall)  # the gold tap is in it
    assert right("d_pot", Action.tap(0.56, 0.3), Action.tap(0.21, 0.5), tall)  # far from all five, in 2.4 of the box
    assert not right("d_pot", Action.tap(0.45, 0.1), Action.tap(0.21, 0.5), tall)
    assert right("d_pot", Action.tap(0.8, 0.8), Action.tap(0.9, 0.8), BUTTON)  # a tap on no element is compared itself


@pytest.mark.parametrize(("corner", "size", "edge"), [(0.3, 0.4, 0.02), (0.25, 0.35, 0.005), (0.4, 0.45, 0.085)])
def test_d_pot_enlarges_elements_in_float64_as_the_published_code_does(corner, size, edge):
    """The gold tap is on the edge of the element 2.4 times as large. In float32 that edge is beyond it."""
    element = UiElement((corner, 0.2, size, 0.5))
    assert right("d_pot", Action.tap(edge, 0.45), Action.tap(corner + size / 2, 0.45), element)
    assert not right("official", Action.tap(edge, 0.45), Action.tap(corner + size / 2, 0.45), element)


def test_the_box_that_an_answer_names_decides_in_d_pot():
    button, icon = UiElement((0.4, 0.4, 0.1, 0.1)), UiElement((0.4, 0.4, 0.02, 0.02))
    (answer,) = predictions([(Action.tap(0.6, 0.5), Action.tap(0.41, 0.41), (button, icon))])
    assert not verdicts([answer], ["d_pot"])["d_pot"][0]
    assert verdicts([replace(answer, box=button.box)], ["d_pot"])["d_pot"][0]


def test_some_treat_both_ends_alike():
    assert accepted(Action.complete(), Action.impossible()) == EITHER_END
    assert accepted(Action.press("enter"), Action.complete()) == set()


def test_the_official_matcher_compares_later_kinds_like_every_type_that_it_does_not_know():
    later = [Action.long_press(0.1, 0.1), Action.open_app("A"), Action.wait(), Action.recents(), Action.answer("A")]
    others = [Action.long_press(0.9, 0.9), Action.open_app("B"), Action.wait(), Action.recents(), Action.answer("B")]
    for gold in later:
        assert [right("official", gold, other) for other in others] == [gold.kind is other.kind for other in others]
        assert not right("official", gold, Action.tap(0.1, 0.1))


def test_an_unknown_dialect_is_refused_with_the_known_names():
    with pytest.raises(UserError, match=r"dialect 'offical' is unknown; choose one of official, strict, .*five_points"):
        verdicts([], ["official", "offical"])


def test_every_dialect_has_a_rule_and_a_source():
    for about in describe_scorers(list(AITW)).values():
        assert about["rule"] and about["source"]


def test_kinds_have_the_names_of_actions():
    actions = [Action(kind) for kind in ActionKind if kind not in KINDS_WITH_TOUCH] + [Action.long_press(0.1, 0.1)]
    table = StepTable.of(predictions([(done, None, ()) for done in [*actions, UP, Action.tap(0.1, 0.1)]]))
    assert [ACTION_NAMES[name] for name in table.gold.name] == [*(a.name for a in actions), "swipe", "tap"]
    assert set(table.predicted.name) == {len(ACTION_NAMES)}


def test_steps_that_were_judged_by_other_scorers_are_refused():
    judged = judge_steps(predictions([(UP, UP, ())]))
    assert judge_steps(judged, ["strict"]) is judged
    with pytest.raises(ValueError, match="judged by official, strict only, not by agentcpm"):
        judge_steps(judged, ["agentcpm"])
