"""AitZ's rules and its table, by hand and by slow definitions."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.evaluation.gold_steps import answered, episode
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.datasets.sources import EpisodeStep
from vlm_agent.datasets.sources.aitz import read_steps
from vlm_agent.episodes import Action, UiElement
from vlm_agent.evaluation.scoring.aitz.metrics import AITZ_SCORERS, MEASURES
from vlm_agent.evaluation.scoring.aitz.rules import text_ratio, texts_match
from vlm_agent.evaluation.scoring.dialects import verdicts
from vlm_agent.evaluation.scoring.metrics import score
from vlm_agent.geometry import AITZ_VERTICAL_SHARE, DIRECTIONS, directions

BUTTON = UiElement((0.40, 0.40, 0.10, 0.20))
TAP = Action.tap(0.45, 0.5)
UP, DOWN = Action.swipe((0.8, 0.5), (0.2, 0.5)), Action.swipe((0.2, 0.5), (0.8, 0.5))


def right(scorer, gold, predicted, *elements, box=None):
    (row,) = answered(episode("a", "single", [gold], elements), [predicted])
    return bool(verdicts([replace(row, box=box)], [scorer])[scorer][0])


def longest_common_subsequence(first, second):
    row = [0] * (len(second) + 1)
    for one in first:
        row = next_row(row, one, second)
    return row[-1]


def next_row(row, one, second):
    new = [0]
    for n, other in enumerate(second):
        new.append(row[n] + 1 if one == other else max(row[n + 1], new[n]))
    return new


@given(st.text("aabcß ", max_size=80), st.text("aabcß ", max_size=80))
def test_the_ratio_is_that_of_the_longest_common_subsequence(first, second):
    total = len(first) + len(second)
    expected = 1 - (total - 2 * longest_common_subsequence(first, second)) / total if total else 1.0
    assert text_ratio(first, second) == expected


def test_ratios_by_hand():
    assert text_ratio("lewenstein", "levenshtein") == 1 - 3 / 21
    assert text_ratio("l0we's", "lowe's") == 0.8333333333333334  # as the package Levenshtein prints it
    assert text_ratio("ab", "cd") == 0 and text_ratio("", "") == 1


def test_a_very_long_answer_is_compared_quickly():
    assert text_ratio("milk " * 20_000, "buy milk") == pytest.approx(0, abs=0.001)


def test_texts_match_by_containment_or_by_a_ratio_above_the_limit():
    assert texts_match("ebay.com", "ebay") and texts_match("ebay", "ebay.com") and texts_match("lowe's", "l0we's")
    assert not texts_match("abcde", "abcdX")  # the ratio is 0.8
    assert not texts_match("ebay", "EBAY")


@pytest.mark.parametrize("scorer", AITZ_SCORERS)
def test_an_empty_text_matches_only_an_empty_one(scorer):
    empty, milk = Action.type_text(""), Action.type_text("milk")
    assert not right(scorer, milk, empty) and not right(scorer, empty, milk)
    assert right(scorer, empty, empty)


@pytest.mark.parametrize("scorer", AITZ_SCORERS)
def test_scrolls_stops_and_buttons(scorer):
    assert right(scorer, UP, UP) and not right(scorer, UP, DOWN)
    assert right(scorer, Action.complete(), Action.impossible())
    assert right(scorer, Action.press("back"), Action.press("back"))
    assert not right(scorer, Action.press("back"), Action.press("home"))
    assert not right(scorer, TAP, UP) and not right(scorer, UP, None)


def test_a_scroll_is_vertical_from_nine_tenths():
    touch = np.zeros((4, 2))
    moved = np.array([[0.9, 1.0], [0.899, 1.0], [-0.2, 0.1], [0.0, -0.1]])
    assert [DIRECTIONS[index] for index in directions(touch, touch + moved, AITZ_VERTICAL_SHARE)] == [
        "down",
        "right",
        "up",
        "left",
    ]
    across = Action.swipe((0.4, 0.4), (0.595, 0.6))
    assert right("coat_point", across, DOWN) and not right("official_direction", across, DOWN)


def test_a_point_is_right_nearby_or_in_one_element_that_is_not_enlarged():
    wide = UiElement((0.40, 0.0, 0.10, 0.9))
    assert right("coat_point", TAP, Action.tap(0.45, 0.63))
    assert not right("coat_point", TAP, Action.tap(0.45, 0.65))
    assert right("coat_point", TAP, Action.tap(0.45, 0.89), wide)
    assert not right("coat_point", TAP, Action.tap(0.45, 0.91), wide)


def test_a_box_is_right_if_it_holds_the_point_when_enlarged():
    assert right("coat_box", TAP, TAP, box=(0.46, 0.41, 0.1, 0.2))  # begins at 0.45 when enlarged
    assert not right("coat_box", TAP, TAP, box=(0.462, 0.41, 0.1, 0.2))
    assert not right("coat_box", TAP, TAP, box=(0.8, 0.8, 0.1, 0.1))
    assert not right("coat_box", TAP, TAP, box=(0.5, 0.6, -0.1, -0.2))


def test_a_box_is_right_if_it_overlaps_with_an_element_that_holds_the_point():
    gold = Action.tap(0.405, 0.405)
    beside = (0.425, 0.425, 0.10, 0.20)  # beyond the point, also when enlarged
    assert right("coat_box", gold, TAP, BUTTON, box=beside)
    assert not right("coat_box", gold, TAP, box=beside)
    assert not right("coat_box", gold, TAP, BUTTON, box=(0.45, 0.45, 0.10, 0.20))
    assert not right("coat_box", Action.tap(0.1, 0.1), TAP, BUTTON, box=beside)


def test_without_a_box_a_tap_stands_for_the_smallest_element_under_it():
    far = Action.tap(0.41, 0.59)
    assert right("coat_box", TAP, far, BUTTON) and not right("coat_box", TAP, far)
    assert right("coat_box", TAP, TAP)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("box", [(0.4, 0.4, np.inf, 0.1), (-np.inf, 0, np.inf, 1), (1e300, 1e300, 1e300, 1e300)])
def test_a_box_far_from_any_screen_is_wrong(box):
    assert not right("coat_box", TAP, TAP, BUTTON, box=box)
    assert right("coat_box", TAP, TAP, BUTTON, box=(-1e200, -1e200, 1e201, 1e201))  # it holds the point


@pytest.fixture
def two_episodes():
    press, stop = Action.press("home"), Action.complete()
    first = answered(
        episode("a", "general", [press, UP, Action.type_text("milk"), stop]),
        [Action.press("back"), UP, Action.type_text("mi"), None],
    )
    second = answered(episode("b", "install", [TAP, TAP, UP, stop]), [TAP, Action.tap(0.9, 0.9), TAP, stop])
    return [*first, *second]


def test_the_table_is_micro_over_steps_and_a_mean_over_episodes(two_episodes):
    row = score(two_episodes, scorers=["coat_point"])["aitz"]["coat_point"]
    assert tuple(row) == MEASURES
    assert {name: cell["value"] for name, cell in row.items()} == {
        "scroll": 50,
        "click_type": 100,
        "click": 50,
        "type_type": 100,
        "type": 100,
        "press": 0,
        "stop": 50,
        "total_type": 75,
        "total": 50,
        "hit_rate": 87.5,
        "goal_progress": 12.5,
        "success": 0,
    }
    assert row["stop"]["of"] == 2 and row["total"]["of"] == 8 and row["success"]["of"] == 2
    assert row["goal_progress"]["interval"] == pytest.approx([0, 12.5 * (1 + 2**0.5)])  # widened for two episodes
    assert row["total"]["interval"] is None  # both episodes have the same share
    assert row["success"]["interval"] == pytest.approx([0, 65.76], abs=0.01)  # Wilson's


def test_a_kind_without_gold_steps_has_no_share(two_episodes):
    row = score(two_episodes[4:], scorers=["coat_box"])["aitz"]["coat_box"]
    assert row["type"] == row["press"] == {"value": None, "interval": None, "of": 0}


def test_actions_that_aitz_lacks_count_in_totals_only():
    rows = answered(episode("a", "single", [Action.wait(), TAP]), [Action.wait(), Action.open_app("mail")])
    row = score(rows, scorers=["coat_point"])["aitz"]["coat_point"]
    assert row["total"]["value"] == row["total_type"]["value"] == 50
    assert row["hit_rate"]["value"] == 0 and row["click"]["of"] == 1


def test_other_scorers_have_no_such_table(two_episodes):
    assert "aitz" not in score(two_episodes)
    assert set(score(two_episodes, scorers=["strict", *AITZ_SCORERS])["aitz"]) == set(AITZ_SCORERS)


def test_the_real_episode_is_scored(shared):
    (path,) = (shared / "data/aitz_episode").glob("*.json")
    read = list(read_steps(path))
    assert all(isinstance(entry, EpisodeStep) for entry in read)
    actions = [entry.step.action for entry in read]
    rows = [
        replace(row, elements=entry.step.elements)
        for row, entry in zip(episode("real", "google_apps", actions), read, strict=True)
    ]
    for scorer in AITZ_SCORERS:
        gold = score(answered(rows, actions), scorers=[scorer])["aitz"][scorer]
        assert {cell["value"] for cell in gold.values()} <= {100, None}
        late = [*actions[:-1], Action.press("back")]
        shares = score(answered(rows, late), scorers=[scorer])["aitz"][scorer]
        assert shares["stop"]["value"] == 0 and shares["success"]["value"] == 0
        assert shares["total"]["value"] == shares["goal_progress"]["value"] == 75
