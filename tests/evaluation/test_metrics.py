"""The numbers, computed by hand, and the traps of published scorers."""

import json

import numpy as np
import pytest
from gold_steps import answered, episode, random_action

from vlm_agent.episodes import SUBSETS, Action, UiElement
from vlm_agent.evaluation.metrics import OVERALL, SHARES, headline, overall_weights, score
from vlm_agent.evaluation.verdicts import verdicts

HOME, DONE = Action.press("home"), Action.complete()
UP, DOWN = Action.swipe((0.8, 0.5), (0.2, 0.5)), Action.swipe((0.2, 0.5), (0.8, 0.5))
TAP = Action.tap(0.5, 0.5)


@pytest.fixture(scope="module")
def by_hand():
    """Three episodes in two subsets, with answers of every sort."""
    gold = [
        *episode("a", "general", [HOME, UP, Action.type_text("milk"), DONE]),
        *episode("b", "general", [TAP, DONE]),
        *episode("c", "single", [TAP, Action.tap(0.1, 0.1)], (UiElement((0.48, 0.48, 0.04, 0.04)),)),
    ]
    answers = [HOME, DOWN, Action.type_text("Milk"), None]
    answers += [Action.tap(0.6, 0.5), DONE]
    answers += [Action.tap(0.49, 0.51), UP]
    return answered(gold, answers)


def test_verdicts_by_both_scorers(by_hand):
    matched = verdicts(by_hand)
    assert matched["official"].tolist() == [True, True, True, False, True, True, True, False]
    assert matched["strict"].tolist() == [True, False, False, False, False, True, True, False]


def test_shares_by_hand(by_hand):
    scores = score(by_hand)
    official, strict = scores["official"]["general"], scores["strict"]["general"]
    assert official["partial_match"] == pytest.approx(100 * (3 / 4 + 2 / 2) / 2)
    assert official["step_match"] == pytest.approx(100 * 5 / 6)
    assert official["complete_match"] == 50
    assert strict["partial_match"] == pytest.approx(100 * (1 / 4 + 1 / 2) / 2)
    assert strict["complete_match"] == 0
    assert official["action_type"] == strict["action_type"] == pytest.approx(100 * 5 / 6)
    assert (official["tap"], official["swipe"], strict["tap"], strict["swipe"]) == (100, 100, 0, 0)
    assert official["typed_text"] == strict["typed_text"] == 0
    assert official["parse_failures"] == pytest.approx(100 / 6)
    assert (official["episodes"], official["steps"]) == (2, 6)


def test_overall_is_the_mean_of_the_subsets_present(by_hand):
    overall = score(by_hand)["official"][OVERALL]
    assert overall["subsets"] == ["general", "single"]
    assert overall["partial_match"] == pytest.approx((87.5 + 50) / 2)
    assert overall["swipe"] == 100  # single has no swipes: the mean of the one subset that has
    assert (overall["episodes"], overall["steps"]) == (3, 8)


def test_an_empty_subset_is_null_and_json_has_no_nan(by_hand):
    scores = json.loads(json.dumps(score(by_hand), allow_nan=False))
    assert set(scores["official"]) == {OVERALL, *SUBSETS}
    install = scores["official"]["install"]
    assert all(install[share] is None for share in SHARES)
    assert install["interval"] is None
    assert install["steps"] == 0


def test_no_predictions_at_all_have_no_score():
    scores = json.loads(json.dumps(score([]), allow_nan=False))
    assert scores["official"][OVERALL]["partial_match"] is None
    assert scores["by_step"] == []


def test_a_parse_failure_is_wrong_and_does_not_inherit_the_sample_before():
    gold = episode("a", "general", [HOME, HOME, HOME])
    scores = score(answered(gold, [HOME, None, None]))
    assert scores["official"]["general"]["partial_match"] == pytest.approx(100 / 3)
    assert scores["strict"]["general"]["partial_match"] == pytest.approx(100 / 3)
    assert scores["official"]["general"]["parse_failures"] == pytest.approx(200 / 3)


def test_failures_stay_in_the_denominator():
    gold = [*episode("a", "general", [HOME]), *episode("b", "general", [HOME])]
    assert score(answered(gold, [HOME, None]))["official"]["general"]["partial_match"] == 50


def test_a_missing_prediction_is_an_error_naming_it(by_hand):
    with pytest.raises(ValueError, match="episode a, 4 steps: no prediction of step 3"):
        score([row for row in by_hand if (row.episode_id, row.step) != ("a", 3)])


def test_groups_get_the_same_columns_over_their_episodes(by_hand):
    scores = score(by_hand, {"memory_goals": {"a", "c", "not in this run"}, "none": set()})
    memory = scores["official"]["memory_goals"]
    assert memory["partial_match"] == pytest.approx(100 * (3 / 4 + 1 / 2) / 2)
    assert memory["episodes"] == 2
    assert scores["official"]["none"]["partial_match"] is None
    assert scores["official"][OVERALL] == score(by_hand)["official"][OVERALL]


def test_a_group_may_not_be_called_like_a_subset(by_hand):
    with pytest.raises(ValueError, match="single"):
        score(by_hand, {"single": {"a"}})


def test_confusion_counts_names(by_hand):
    confusion = score(by_hand)["confusion"]
    assert confusion["tap"]["tap"] == 2
    assert confusion["tap"]["swipe"] == 1
    assert confusion["complete"] == {name: int(name in ("complete", "unparsed")) for name in confusion["complete"]}
    assert sum(sum(row.values()) for row in confusion.values()) == len(by_hand)


def test_accuracy_by_step_index(by_hand):
    by_step = score(by_hand)["by_step"]
    assert [row["steps"] for row in by_step] == [3, 3, 1, 1]
    assert [row["official"] for row in by_step] == pytest.approx([100, 200 / 3, 100, 0])
    assert [row["strict"] for row in by_step] == pytest.approx([200 / 3, 100 / 3, 0, 0])


def test_intervals_hold_the_mean_repeat_and_shrink_with_episodes(world):
    rng = np.random.default_rng(1)
    rows = answered(world, [row.gold if rng.random() < 0.6 else None for row in world])
    first, again, other_seed = score(rows), score(rows), score(rows, seed=1)
    assert first == again
    overall = first["official"][OVERALL]
    assert overall["interval"][0] < overall["partial_match"] < overall["interval"][1]
    assert other_seed["official"][OVERALL]["interval"] != overall["interval"]
    general = first["official"]["general"]
    assert np.ptp(overall["interval"]) < np.ptp(general["interval"])


def test_a_subset_that_is_all_right_has_no_spread():
    rows = answered(episode("a", "general", [HOME]), [HOME])
    assert score(rows)["official"]["general"]["interval"] == [100, 100]


def test_the_interval_is_that_of_the_bootstrap_in_theory():
    n, share = 400, 0.7
    rows = [r for k in range(n) for r in answered(episode(str(k), "single", [HOME]), [HOME if k < n * share else DONE])]
    low, high = score(rows)["official"]["single"]["interval"]
    half = 1.96 * 100 * np.sqrt(share * (1 - share) / n)
    assert (low, high) == pytest.approx((70 - half, 70 + half), abs=0.8)


def test_weights_add_up_to_the_overall_score(world):
    rng = np.random.default_rng(3)
    rows = answered(world, [row.gold if rng.random() < 0.4 else random_action(rng) for row in world])
    weights, scores = overall_weights(rows), score(rows)
    assert weights.sum() == pytest.approx(1)
    for scorer, right in verdicts(rows).items():
        assert 100 * weights @ right == pytest.approx(scores[scorer][OVERALL]["partial_match"])


def test_the_order_of_the_predictions_does_not_matter(by_hand):
    forwards, backwards = score(by_hand), score(by_hand[::-1])
    assert headline(forwards) == headline(backwards)


def test_the_headline_is_the_partial_match(by_hand):
    line = headline(score(by_hand, {"memory_goals": {"a"}}))
    assert line["official"]["general"] == pytest.approx(87.5)
    assert line["strict"]["memory_goals"] == 25
    assert line["official"]["install"] is None
