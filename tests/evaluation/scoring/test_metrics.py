"""The numbers, computed by hand, and the traps of published scorers."""

import json

import numpy as np
import pytest
from helpers.evaluation.gold_steps import answered, episode, random_action

from vlm_agent.datasets.sources.aitw import SUBSETS
from vlm_agent.episodes import Action, UiElement
from vlm_agent.errors import UserError
from vlm_agent.evaluation.scoring.comparison import compare
from vlm_agent.evaluation.scoring.dialects import verdicts
from vlm_agent.evaluation.scoring.measures import interval, mean_resampled, percent, resampled
from vlm_agent.evaluation.scoring.metrics import OVERALL, SHARES, headline, overall_weights, score, shown_sets

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
    with pytest.raises(UserError, match="episode a, 4 steps: no prediction of step 3"):
        score([row for row in by_hand if (row.episode_id, row.step) != ("a", 3)])


def test_groups_get_the_same_columns_over_their_episodes(by_hand):
    scores = score(by_hand, {"memory_goals": {"a", "c", "not in this run"}, "none": set()})
    memory = scores["official"]["memory_goals"]
    assert memory["partial_match"] == pytest.approx(100 * (3 / 4 + 1 / 2) / 2)
    assert memory["episodes"] == 2
    assert scores["official"]["none"]["partial_match"] is None
    assert scores["official"][OVERALL] == score(by_hand)["official"][OVERALL]


def test_tables_show_the_subsets_with_episodes_and_every_group(by_hand):
    rows = score(by_hand, {"memory_goals": {"a"}, "none": set()})["official"]
    assert shown_sets(rows) == (OVERALL, "general", "single", "memory_goals", "none")


def test_a_group_cannot_have_the_name_of_a_subset(by_hand):
    with pytest.raises(UserError, match="single"):
        score(by_hand, {"single": {"a"}})


def test_the_confusion_lists_kinds_that_are_only_predicted_or_only_demonstrated():
    wait, recents = Action.wait(), Action.recents()
    confusion = score(answered(episode("a", "general", [HOME, wait]), [recents, HOME]))["confusion"]
    assert confusion[HOME.name][recents.name] == confusion[wait.name][HOME.name] == 1
    assert confusion[recents.name][wait.name] == 0


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
    first = score(rows)
    assert first == score(rows)
    overall = first["official"][OVERALL]
    assert overall["interval"][0] < overall["partial_match"] < overall["interval"][1]
    general = first["official"]["general"]
    assert np.ptp(overall["interval"]) < np.ptp(general["interval"])


@pytest.mark.parametrize("count", [1, 30])
def test_episodes_that_do_not_differ_have_no_bootstrap_interval(count):
    rows = [row for n in range(count) for row in answered(episode(str(n), "general", [HOME] * 2), [HOME, DONE])]
    for row in (score(rows)["official"][name] for name in ("general", OVERALL)):
        assert row["partial_match"] == 50 and row["episodes"] == count
        assert row["interval"] is None
        assert {share for share, edges in row["intervals"].items() if edges is not None} == {"complete_match"}


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [(0, 30, 0, 11.35), (30, 30, 88.65, 100), (0, 1, 0, 79.35), (3, 10, 10.78, 60.32)],
)
def test_the_complete_match_has_wilsons_interval(right, count, low, high):
    rows = [
        row for n in range(count) for row in answered(episode(str(n), "single", [HOME]), [HOME if n < right else UP])
    ]
    scores = score(rows)["official"]
    for row in (scores["single"], scores[OVERALL]):  # overall is the mean of this one subset
        assert row["intervals"]["complete_match"] == pytest.approx([low, high], abs=0.01)


def test_the_mean_of_two_subsets_has_a_narrower_interval_than_each():
    rows = [
        row
        for subset in ("general", "single")
        for n in range(30)
        for row in answered(episode(f"{subset} {n}", subset, [HOME]), [DONE])
    ]
    scores = score(rows)["official"]
    low, high = scores["general"]["intervals"]["complete_match"]
    assert scores[OVERALL]["intervals"]["complete_match"] == pytest.approx([0, high / np.sqrt(2)])
    assert low == 0


def test_the_interval_is_that_of_the_bootstrap_in_theory():
    n, share = 400, 0.7
    rows = [r for k in range(n) for r in answered(episode(str(k), "single", [HOME]), [HOME if k < n * share else DONE])]
    low, high = score(rows)["official"]["single"]["interval"]
    half = 1.96 * 100 * np.sqrt(share * (1 - share) / n)
    assert (low, high) == pytest.approx((70 - half, 70 + half), abs=0.8)


def test_the_interval_over_subsets_of_few_episodes_holds_the_share_at_nearly_the_stated_rate():
    """With plain resamples 87 % of the intervals hold it."""
    held, trials, percents = 0, 400, (30, 50, 60, 70, 80)
    for trial in range(trials):
        rng = np.random.default_rng([7, trial])
        parts = []
        for share, episodes in zip(percents, (3, 4, 5, 3, 4), strict=True):
            right = rng.binomial(4, rng.beta(share / 50, 2 - share / 50, episodes)) / 4
            ones = np.ones(episodes)
            parts.append((percent(right, ones), resampled(right, ones, f"{trial} {share}")))
        low, high = interval(mean_resampled(parts))
        held += low <= np.mean(percents) <= high
    assert 0.92 < held / trials < 0.97


@pytest.mark.parametrize("length", [1, 2])
def test_the_mean_over_subsets_has_no_interval_if_one_has_a_single_episode(length):
    gold = [row for n in range(30) for row in episode(str(n), "general", [HOME] * 2)]
    answers = [HOME if n % 3 else DONE for n in range(60)]
    alone = episode("alone", "single", [HOME] * length)
    row = score(answered(gold + alone, [*answers, *([HOME] * length)]))["official"]
    assert row["general"]["interval"] is not None
    assert row[OVERALL]["interval"] is None
    assert row[OVERALL]["partial_match"] == pytest.approx((row["general"]["partial_match"] + 100) / 2)


def test_an_interval_of_two_episodes_is_wide_and_ends_at_the_bounds_of_a_share():
    gold = [*episode("a", "single", [HOME]), *episode("b", "single", [HOME])]
    assert score(answered(gold, [HOME, DONE]))["official"]["single"]["interval"] == [0, 100]
    with_both = compare(answered(gold, [HOME, DONE]), answered(gold, [DONE, HOME]))["official"]["single"]
    assert with_both["partial_match"]["interval"] == [-100, 100]


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


def test_goal_progress_is_where_the_first_error_is():
    gold = [
        *episode("first", "general", [HOME] * 4),
        *episode("third", "general", [HOME] * 4),
        *episode("never", "general", [HOME] * 2),
        *episode("unparsed", "single", [HOME] * 2),
    ]
    answers = [DONE, HOME, HOME, HOME, HOME, HOME, DONE, HOME, HOME, HOME, HOME, None]
    scores = score(answered(gold, answers))
    assert scores["official"]["general"]["goal_progress"] == pytest.approx(100 * (0 + 1 / 2 + 1) / 3)
    assert scores["official"]["single"]["goal_progress"] == 50
    assert scores["official"][OVERALL]["goal_progress"] == 50


def test_goal_progress_does_not_depend_on_the_order_of_the_rows():
    rows = answered(episode("a", "single", [HOME] * 4), [HOME, DONE, HOME, DONE])
    assert score(rows)["official"]["single"]["goal_progress"] == 25
    assert score(rows[::-1])["official"]["single"]["goal_progress"] == 25


def test_accuracy_by_episode_length(by_hand):
    by_length = score(by_hand)["by_length"]
    assert [(row["length"], row["episodes"], row["steps"]) for row in by_length] == [(2, 2, 4), (4, 1, 4)]
    assert [row["official"] for row in by_length] == pytest.approx([75, 75])
    assert [row["strict"] for row in by_length] == pytest.approx([50, 25])


def test_every_share_has_an_interval_around_it(world):
    rng = np.random.default_rng(4)
    rows = answered(
        world, [row.gold if rng.random() < 0.6 else random_action(rng) if rng.random() < 0.8 else None for row in world]
    )
    overall = score(rows)["official"][OVERALL]
    assert set(overall["intervals"]) == set(SHARES)
    assert overall["intervals"]["partial_match"] == overall["interval"]
    for share in SHARES:
        low, high = overall["intervals"][share]
        assert low <= overall[share] <= high


def test_a_share_undefined_in_some_draws_is_resampled_over_the_others():
    rows = [*episode("a", "single", [UP]), *episode("b", "single", [HOME]), *episode("c", "single", [HOME])]
    row = score(answered(rows, [UP, HOME, DONE]))["official"]["single"]
    assert row["swipe"] == 100
    assert row["intervals"]["swipe"] is None  # every draw with a swipe gives the same share


def test_drawing_counts_of_kinds_is_drawing_episodes():
    rng = np.random.default_rng(8)
    possible = rng.integers(1, 6, 300).astype(float)
    added = rng.binomial(possible.astype(int), 0.6).astype(float)
    chosen = rng.integers(0, 300, (4000, 300))
    literal = 100 * added[chosen].sum(axis=1) / possible[chosen].sum(axis=1)
    drawn = resampled(added, possible, "")
    assert drawn.mean() == pytest.approx(literal.mean(), abs=0.3)
    assert drawn.std() == pytest.approx(literal.std(), rel=0.1)


def test_dialects_are_scored_by_name_and_explained(by_hand):
    scores = score(by_hand, scorers=("official", "strict", "official_text"))
    assert list(scores["scorers"]) == ["official", "strict", "official_text"]
    assert "Auto-GUI" in scores["scorers"]["official_text"]["source"]
    assert scores["official_text"]["general"]["partial_match"] == scores["official"]["general"]["partial_match"]
    assert {"official", "strict", "official_text"} <= set(scores["by_step"][0]) & set(scores["by_length"][0])
    with pytest.raises(UserError, match="dialect 'lenient' is unknown"):
        score(by_hand, scorers=("lenient",))


def test_kinds_are_shares_of_all_steps_demonstrated_predicted_and_right():
    gold = [Action.tap(0.1, 0.1), Action.tap(0.1, 0.1), Action.complete(), Action.type_text("a")]
    predicted = [Action.tap(0.1, 0.1), Action.tap(0.9, 0.9), Action.tap(0.1, 0.1), None]
    kinds = score(answered(episode("0", "single", gold, ()), predicted))["kinds"]
    assert [kinds[row]["tap"] for row in ("gold", "predicted", "official", "strict")] == [50.0, 75.0, 25.0, 25.0]
    assert (kinds["gold"]["complete"], kinds["predicted"]["complete"], kinds["predicted"]["unparsed"]) == (25, 0, 25)
    assert all(sum(kinds[row].values()) == 100 for row in ("gold", "predicted"))
