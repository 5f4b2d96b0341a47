"""Two runs are compared on the same steps, pair by pair, or not at all."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers.evaluation.gold_steps import answered, episode, random_action

from vlm_agent.episodes import Action, UiElement
from vlm_agent.errors import UserError
from vlm_agent.evaluation.predictions import write_predictions
from vlm_agent.evaluation.scoring.comparison import compare
from vlm_agent.evaluation.scoring.measures import paired_proportions
from vlm_agent.evaluation.scoring.metrics import OVERALL, SHARES, score

HOME, DONE = Action.press("home"), Action.complete()
GOLD = [*episode("a", "general", [HOME, HOME, DONE, DONE]), *episode("b", "single", [HOME, DONE])]
FIRST = answered(GOLD, [HOME, HOME, HOME, None, HOME, HOME])
SECOND = answered(GOLD, [HOME, DONE, DONE, DONE, HOME, HOME])


def test_differences_by_hand():
    rows = compare(FIRST, SECOND, {"both": {"a", "b"}})["official"]
    general = rows["general"]["partial_match"]
    assert (general["before"], general["now"], general["difference"]) == (50, 75, 25)
    assert general["interval"] is None  # one episode: nothing to draw
    assert rows["single"]["partial_match"]["difference"] == 0
    assert rows[OVERALL]["partial_match"]["difference"] == pytest.approx(12.5)
    assert rows["both"]["step_match"]["difference"] == pytest.approx(100 / 6)
    assert rows["general"]["goal_progress"]["difference"] == -25
    assert rows["general"]["parse_failures"]["difference"] == -25
    assert (rows["both"]["episodes"], rows["both"]["steps"]) == (2, 6)


def test_the_steps_that_changed_are_named():
    changed = compare(FIRST, SECOND)["changed"]["official"]
    assert changed == {"right_to_wrong": {"a": [1]}, "wrong_to_right": {"a": [2, 3]}}


def test_each_side_has_the_scores_of_score(world):
    rng = np.random.default_rng(2)
    runs = [
        answered(world, [row.gold if rng.random() < p else random_action(rng) for row in world]) for p in (0.4, 0.7)
    ]
    first, second = (score(run) for run in runs)
    rows = compare(*runs)
    for scorer in ("official", "strict"):
        for name, row in rows[scorer].items():
            for share in SHARES:
                assert row[share]["before"] == first[scorer][name][share]
                assert row[share]["now"] == second[scorer][name][share]
    low, high = rows["official"][OVERALL]["partial_match"]["interval"]
    assert 0 < low < rows["official"][OVERALL]["partial_match"]["difference"] < high


def test_the_complete_match_of_runs_that_never_differ_has_an_interval():
    """No change in 37 episodes does not show that there is none: Bonett and Price's interval of (0, 0) of 37."""
    gold = [row for number in range(37) for row in episode(str(number), "single", [HOME] * 2)]
    wrong = answered(gold, [DONE] * len(gold))
    for name in ("single", OVERALL):
        cell = compare(wrong, wrong)["official"][name]["complete_match"]
        assert cell["difference"] == 0
        assert cell["interval"] == pytest.approx([-7.11, 7.11], abs=0.01)


def test_the_interval_of_paired_proportions_holds_the_difference_at_the_stated_rate():
    rng = np.random.default_rng(5)
    kinds, shares = np.array([1, -1, 0]), (0.15, 0.05, 0.8)
    held = 0
    for _ in range(2000):
        drawn = rng.choice(kinds, 60, p=shares)
        low, high = paired_proportions(int((drawn == 1).sum()), int((drawn == -1).sum()), 60)
        held += low <= 10 <= high
    assert 0.94 < held / 2000 < 0.97
    assert paired_proportions(0, 0, 0) is None
    assert paired_proportions(1, 0, 1)[1] == 100


def test_a_resample_without_typed_steps_of_one_subset_does_not_count():
    """The share over the other subsets is another measure: it would widen the interval to their values."""
    typed, right, wrong = Action.type_text("milk"), Action.type_text("milk"), Action.type_text("beer")
    gold = [row for number in range(20) for row in episode(f"g{number}", "general", [typed, DONE])]
    answers = [action for number in range(20) for action in (right if number % 2 else wrong, DONE)]
    for number in range(8):  # two of eight episodes type: every tenth resample has neither
        gold += episode(f"s{number}", "single", [typed if number < 2 else HOME, DONE])
        answers += [right if number < 2 else HOME, DONE]
    overall = score(answered(gold, answers))["official"][OVERALL]
    assert overall["typed_text"] == pytest.approx(75)
    low, high = overall["intervals"]["typed_text"]
    assert 60 < low < 75 < high < 90  # general alone has 50


def test_the_mean_over_subsets_has_no_paired_interval_if_one_has_a_single_episode():
    gold = [row for number in range(20) for row in episode(f"g{number}", "general", [HOME, DONE])]
    first, second = ([HOME, DONE] * 20, [HOME, DONE, HOME, HOME] * 10)
    alone = episode("s", "single", [HOME, DONE])
    rows = compare(answered(gold + alone, [*first, HOME, DONE]), answered(gold + alone, [*second, HOME, HOME]))
    assert rows["official"]["general"]["partial_match"]["interval"] is not None
    assert rows["official"][OVERALL]["partial_match"]["interval"] is None


def test_a_subset_in_which_one_run_has_no_share_is_not_in_the_mean_of_the_other():
    """GUIEvalKit's scorer counts no step whose answer is not an action."""
    gold = [row for number in range(4) for row in episode(f"g{number}", "general", [HOME, DONE])]
    gold += [row for number in range(4) for row in episode(f"s{number}", "single", [HOME, DONE])]
    gold = [replace(row, size=(2400, 1080)) for row in gold]
    half = [HOME, DONE, DONE, HOME] * 2
    first, second = answered(gold, [*half, *[None] * 8]), answered(gold, [*half, *[DONE, HOME] * 4])
    cell = compare(first, second, scorers=["guievalkit"])["guievalkit"][OVERALL]["partial_match"]
    assert (cell["before"], cell["now"], cell["difference"]) == (50, 50, 0)


def test_pairing_narrows_the_interval():
    rng = np.random.default_rng(6)
    gold = [row for number in range(100) for row in episode(str(number), "single", [HOME] * 4)]
    easy = np.repeat(rng.random(100) < 0.5, 4)  # episodes that both runs get wholly right or wrong, but for a little
    first = answered(gold, [HOME if right else DONE for right in easy])
    second = answered(gold, [HOME if right or rng.random() < 0.05 else DONE for right in easy])
    paired = np.ptp(compare(first, second)["official"][OVERALL]["partial_match"]["interval"])
    assert paired < 0.3 * np.ptp(score(second)["official"][OVERALL]["interval"])


def test_a_run_does_not_differ_from_itself():
    rows = compare(SECOND, SECOND)
    assert rows["official"][OVERALL]["partial_match"] == {
        "before": 62.5,
        "now": 62.5,
        "difference": 0,
        "interval": None,
    }
    assert rows["changed"]["strict"] == {"right_to_wrong": {}, "wrong_to_right": {}}


def test_the_order_of_the_rows_does_not_matter():
    assert compare(FIRST, SECOND[::-1]) == compare(FIRST, SECOND)


def test_files_and_lists_compare_alike_and_the_result_is_json_serialisable(tmp_path):
    for name, rows in (("first", FIRST), ("second", SECOND)):
        write_predictions(tmp_path / name, rows)
    assert compare(tmp_path / "first", tmp_path / "second") == compare(FIRST, SECOND)
    json.dumps(compare(FIRST, SECOND), allow_nan=False)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (SECOND[:4], "the first run has 1 episodes that the second run lacks, starting with b"),
        (
            [*SECOND, *episode("c", "single", [HOME])],
            "the second run has 1 episodes that the first run lacks, starting with c",
        ),
        ([*SECOND[:4], *(replace(row, subset="install") for row in SECOND[4:])], "episode b has a different subset"),
        ([*SECOND[:4], *episode("b", "single", [HOME])], "episode b has a different length"),
        (
            [replace(SECOND[0], gold=DONE), *SECOND[1:]],
            "episode a, step 0: the first run and the second run differ in the gold action",
        ),
        (
            [replace(row, elements=(UiElement((0.1, 0.1, 0.1, 0.1)),)) for row in SECOND],
            "episode a, step 0: the first run and the second run differ in the elements, here and in 5 other steps",
        ),
    ],
)
def test_runs_over_other_gold_steps_are_refused_by_what_differs(other, message):
    with pytest.raises(UserError, match=message):
        compare(FIRST, other)


@pytest.mark.parametrize(
    "other",
    [
        (UiElement((0.1, 0.1, 0.1, 0.1)), UiElement((0.0, 0.0, 0.0, 0.0))),  # another number, the same sum
        (UiElement((0.2, 0.1, 0.1, 0.1)),),  # the same number, another sum
    ],
)
def test_a_gold_step_with_other_elements_is_another_gold_step(other):
    one, two = (
        [replace(row, elements=elements) for row in FIRST] for elements in ((UiElement((0.1, 0.1, 0.1, 0.1)),), other)
    )
    with pytest.raises(UserError, match="differ in the elements"):
        compare(one, two)


def test_another_gold_text_is_another_gold_step():
    milk, bread = (episode("a", "single", [Action.type_text(word)]) for word in ("milk", "bread"))
    with pytest.raises(UserError, match="episode a, step 0: the first run and the second run differ in the gold text"):
        compare(milk, bread)


def test_another_end_of_a_gold_swipe_is_another_gold_step():
    swipes = [[replace(row, gold=Action.swipe((0.8, 0.5), (end, 0.5))) for row in FIRST[:1]] for end in (0.2, 0.3)]
    with pytest.raises(UserError):
        compare(*swipes)


def test_points_that_differ_are_another_gold_step():
    one, other = (episode("a", "single", [Action.tap(0.5, x)]) for x in (0.5, 0.50001))
    with pytest.raises(UserError, match="differ in the gold action"):
        compare(one, other)
