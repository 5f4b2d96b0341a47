"""Which episodes and steps are shown."""

import re

import numpy as np
import pytest
from helpers.evaluation.gold_steps import answered, episode
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.episodes import Action, UiElement
from vlm_agent.evaluation import predictions as files
from vlm_agent.evaluation.predictions import write_predictions
from vlm_agent.evaluation.report.gallery import choose, choose_flips, rows_by_id
from vlm_agent.evaluation.report.overlay import boxes, marks
from vlm_agent.evaluation.scoring.judged import judge_steps


@pytest.fixture(scope="module")
def predictions():
    rows = []
    for number, wrong in enumerate((0, 2, 1, 0)):
        gold = episode(f"e{number}", "single", [Action.press("home")] * 3)
        rows += answered(gold, [None] * wrong + [Action.press("home")] * (3 - wrong))
    return rows


def test_the_worst_episodes_come_first_and_no_episode_twice(predictions):
    worst, others = choose(judge_steps(predictions), worst=2, random=5, seed=0)
    assert worst == ["e1", "e2"]
    assert sorted(others) == ["e0", "e3"]


def test_the_choice_does_not_depend_on_the_order_of_the_rows(predictions):
    assert choose(judge_steps(predictions), 1, 2, seed=3) == choose(judge_steps(predictions[::-1]), 1, 2, seed=3)


def test_steps_come_in_order_and_only_of_the_episodes_asked_for(predictions):
    rows = rows_by_id(predictions[::-1], ["e2"])
    assert list(rows) == ["e2"]
    assert [row.step for row in rows["e2"]] == [0, 1, 2]


def test_only_the_episodes_asked_for_are_made_of_a_file(predictions, tmp_path, monkeypatch):
    """A file of AITW's test split has 570,000 rows, and a report shows some hundreds."""
    write_predictions(tmp_path / "p.parquet", predictions)
    made, make = [], files._prediction
    monkeypatch.setattr(files, "_prediction", lambda row: made.append(row["episode_id"]) or make(row))
    assert rows_by_id(tmp_path / "p.parquet", ["e2", "e0"]) == rows_by_id(predictions, ["e2", "e0"])
    assert sorted(set(made)) == ["e0", "e2"]


@given(st.dictionaries(st.text(max_size=3), st.lists(st.integers(0, 9), min_size=1, unique=True)), st.integers(0, 12))
def test_flips_have_the_requested_number_are_distinct_and_from_as_many_episodes_as_possible(changed, count):
    flips = choose_flips(changed, count, seed=0)
    assert len(flips) == len(set(flips)) == min(count, sum(map(len, changed.values())))
    assert all(step in changed[name] for name, step in flips)
    assert len({name for name, _ in flips}) == min(len(flips), len(changed))


def test_a_tap_is_a_ring_where_it_was_a_swipe_ends_where_it_lifts_and_the_rest_is_in_words():
    swipe = Action.swipe((0.8, 0.5), (0.2, 0.5))
    first, second, third = marks(
        [("gold", Action.tap(0.25, 0.5)), ("before", swipe), ("agent", Action.complete())], 720
    )
    assert first.path.startswith("M158 180a22 22") and "M158" not in first.path[1:], "nothing inside of the ring"
    assert "M180 576L180 144" in second.path
    assert (third.words, third.path) == ("complete", "")


def test_a_tap_on_an_element_is_a_frame_outside_of_it_and_each_next_one_is_wider():
    element = UiElement((0.25, 0.25, 0.05, 0.5), "Karen")
    taps = [(name, Action.tap(0.26, 0.5)) for name in ("gold", "before", "agent")]
    all_marks = list(marks(taps, 720, (UiElement((0, 0, 1, 1), "all"), element)))
    lefts = []
    for mark in all_marks:
        left, top, width, height = map(int, re.match(r"M(\d+) (\d+)h(\d+)v(\d+)h-\d+z", mark.path).groups())
        assert left <= 90 - 6 and left + width >= 270 + 6 and top <= 180 - 6 and top + height >= 216 + 6
        assert mark.path.endswith(f"M180 {top}v-9M{left} 187h-9")
        lefts.append(left)
    assert lefts[0] > lefts[1] > lefts[2]


def test_a_frame_on_another_element_is_as_narrow_as_the_first():
    """The label of an icon is right below it."""
    elements = (UiElement((0.1, 0.1, 0.1, 0.1), "", "ICON_PLAY"), UiElement((0.5, 0.1, 0.1, 0.1), "", "ICON_HOME"))
    taps = [("gold", Action.tap(0.15, 0.15)), ("agent", Action.tap(0.55, 0.15))]
    gold, agent = marks(taps, 720, elements)
    assert gold.path.startswith("M30 66h") and agent.path.startswith("M30 354h")


def test_words_move_to_the_top_where_something_at_the_bottom_is_touched():
    for y, lies in ((0.3, lambda at: at > 600), (0.95, lambda at: at < 120)):
        _, words = marks([("gold", Action.tap(y, 0.5)), ("agent", Action.complete())], 720)
        assert lies(words.y)


def test_a_long_press_has_a_place_and_words():
    place, words = sorted(marks([("agent", Action.long_press(0.5, 0.5))], 720), key=lambda mark: mark.words)
    assert place.path and words.words == "long press"


def test_an_unparsed_answer_has_no_mark_and_long_words_are_truncated():
    (mark,) = marks([("gold", Action.type_text("w" * 500)), ("agent", None)], 720)
    assert len(mark.words) < 30


def test_boxes_of_text_and_icons_are_drawn_apart():
    elements = [UiElement((0.0, 0.0, 0.5, 1.0), "a", "TEXT"), UiElement((0.5, 0.5, 0.1, 0.1), "", "ICON_HOME")]
    text, icon = boxes(elements, 720)
    assert text == "M0 0h360v360h-360z"
    assert icon == "M180 360h36v72h-36z"
    assert boxes([], 720) == ("", "")
    assert np.char.count([text, icon], "M").tolist() == [1, 1]
