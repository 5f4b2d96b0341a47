"""What a policy reaches that never looks at the screen."""

import json

import numpy as np
import pytest
from helpers.evaluation.gold_steps import answered, episode, random_action

from vlm_agent.datasets.sources.aitw import SUBSETS
from vlm_agent.episodes import TARGET, Action, UiElement
from vlm_agent.errors import UserError
from vlm_agent.evaluation.offline.baselines import blind_ceiling, constant_predictions, most_frequent_action
from vlm_agent.evaluation.predictions import write_predictions
from vlm_agent.evaluation.scoring.metrics import OVERALL, score

HOME, DONE = Action.press("home"), Action.complete()


def test_the_most_frequent_action_counts_gestures_by_bin():
    taps = [Action.tap(0.501, 0.501), Action.tap(0.509, 0.505), Action.tap(0.505, 0.509)]
    frequent = most_frequent_action([*taps, HOME, HOME, DONE])
    assert frequent == Action.swipe((0.505, 0.505), (0.505, 0.505))


def test_ties_are_broken_the_same_way_each_time():
    assert most_frequent_action([HOME, DONE]) == most_frequent_action([DONE, HOME]) == DONE


def test_without_training_steps_the_most_frequent_action_is_undefined():
    with pytest.raises(UserError, match="have no steps"):
        most_frequent_action([])


def test_constant_predictions_answer_every_step_alike(world):
    (table,) = constant_predictions(world, HOME)
    assert set(table.predicted.kind.tolist()) == {HOME.kind}
    assert table.gold.touch.tolist() == [list(row.gold.touch_yx) for row in world]
    share = np.mean([row.gold == HOME for row in world])
    assert score(table)["official"][OVERALL]["step_match"] == pytest.approx(100 * share, abs=10)


def test_the_ceiling_by_hand():
    top, bottom = UiElement((0.0, 0.0, 0.1, 1.0)), UiElement((0.9, 0.0, 0.1, 1.0))
    gold = episode(
        "a",
        "single",
        [Action.tap(0.05, 0.5), Action.tap(0.95, 0.5), Action.tap(0.95, 0.1), Action.type_text("x"), DONE],
        (top, bottom),
    )
    ceiling = blind_ceiling(gold)
    # Either tap constant gets its own bar; the texts and the end come for free.
    assert ceiling["official"]["single"]["partial_match"] == pytest.approx(80)
    assert ceiling["strict"]["single"]["partial_match"] == pytest.approx(80)
    assert ceiling["constants"]["strict"]["type"] == 'Input text "x"'


def test_a_strict_tap_of_the_ceiling_may_lie_anywhere_in_the_gold_box():
    boxes = UiElement((0.0, 0.4, 0.6, 0.2), type=TARGET), UiElement((0.4, 0.4, 0.6, 0.2), type=TARGET)
    taps = Action.tap(0.1, 0.5), Action.tap(0.9, 0.5)
    gold = [row for tap, box in zip(taps, boxes, strict=True) for row in episode(f"{tap}", "single", [tap], (box,))]
    assert blind_ceiling(gold)["strict"]["single"]["partial_match"] == 100  # a tap in the middle is in both


def test_typed_text_costs_nothing_in_the_official_score_only():
    gold = episode("a", "single", [Action.type_text("x"), Action.type_text("y"), Action.type_text("y"), DONE])
    ceiling = blind_ceiling(gold)
    assert ceiling["official"][OVERALL]["partial_match"] == 100
    assert ceiling["strict"][OVERALL]["partial_match"] == 75
    assert ceiling["constants"]["strict"]["type"] == 'Input text "y"'


def test_short_episodes_of_small_subsets_weigh_more():
    many = [row for k in range(5) for row in episode(f"m{k}", "general", [Action.type_text("often"), DONE])]
    ceiling = blind_ceiling([*many, *episode("s", "single", [Action.type_text("rare")])])
    assert ceiling["constants"]["strict"]["type"] == 'Input text "rare"'
    assert ceiling["strict"][OVERALL]["partial_match"] == pytest.approx((50 + 100) / 2)


def test_no_policy_of_one_constant_a_kind_beats_the_ceiling(world):
    ceiling = blind_ceiling(world, {"some": {"001", "002"}})
    rng = np.random.default_rng(5)
    for _ in range(30):
        constants = {}
        while len(constants) < 8:
            action = rng.choice([random_action(rng), world[rng.integers(len(world))].gold])
            constants.setdefault(action.name, action)
        rows = answered(world, [constants[row.gold.name] for row in world])
        for scorer in ("official", "strict"):
            reached = score(rows)[scorer][OVERALL]["partial_match"]
            # A tap between the candidates may do a shade better than each of them; a random one does not.
            assert reached <= ceiling[scorer][OVERALL]["partial_match"] + 1e-9
    for action in {row.gold for row in world}:
        single = score(constant_predictions(world, action))
        assert single["official"][OVERALL]["partial_match"] <= ceiling["official"][OVERALL]["partial_match"] + 1e-9


def test_the_ceiling_has_the_shape_of_a_score(world):
    groups = {"memory_goals": {"001", "007"}}
    ceiling = json.loads(json.dumps(blind_ceiling(world, groups), allow_nan=False))
    like = score(constant_predictions(world, HOME), groups)
    assert set(like) | {"constants"} == set(ceiling)
    for scorer in ("official", "strict"):
        assert list(ceiling[scorer]) == [OVERALL, *SUBSETS, "memory_goals"] == list(like[scorer])
        assert ceiling[scorer][OVERALL].keys() == like[scorer][OVERALL].keys()
    assert ceiling["official"][OVERALL]["action_type"] == 100


def test_the_ceiling_does_not_look_at_the_answers(world):
    assert blind_ceiling(world) == blind_ceiling(answered(world, [HOME] * len(world)))


def test_the_steps_of_a_file_do_not_become_objects(world, tmp_path, monkeypatch):
    """The 570,000 steps of AITW's test split took 8 GB as objects."""
    write_predictions(tmp_path / "p.parquet", world)
    of_list = blind_ceiling(world), score(constant_predictions(world, DONE))
    monkeypatch.setattr("vlm_agent.evaluation.predictions._prediction", None)
    path = tmp_path / "p.parquet"
    assert (blind_ceiling(path), score(constant_predictions(path, DONE))) == of_list


def test_above_the_cap_a_sample_of_the_gold_taps_is_searched(world, monkeypatch):
    monkeypatch.setattr("vlm_agent.evaluation.offline.baselines._GOLD_CANDIDATES", 5)
    fewer = blind_ceiling(world)
    assert fewer == blind_ceiling(world)
    assert 0 < fewer["strict"][OVERALL]["partial_match"] <= 100
