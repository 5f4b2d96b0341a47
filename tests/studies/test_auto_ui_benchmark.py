"""The ablations of studies/auto_ui: recipes that exist, intervals, and verdicts on the paper's rankings."""

from functools import reduce

import pytest

from studies.ablation.figures import summary
from studies.auto_ui.arms import ARMS, RECIPE
from studies.auto_ui.figures import FIGURES, RANKINGS, rankings
from vlm_agent.recipe.run import read_recipe


@pytest.mark.parametrize("name", ARMS)
def test_every_key_of_an_arm_changes_the_recipe(name):
    arm = ARMS[name]
    keys = {key.removeprefix("--"): value for key, value in zip(arm.keys[::2], arm.keys[1::2], strict=True)}
    own, changed = (read_recipe(arm.recipe, some).model_dump() for some in ({}, keys))
    for key in keys:
        assert reduce(dict.__getitem__, key.split("."), own) != reduce(dict.__getitem__, key.split("."), changed)


def test_the_arms_are_the_rows_of_tables_3_4_and_7():
    table_3 = {"full", "without chains", "history only", "plan only", "unnormalised"}
    assert table_3 | {"pooled", "screen description"} <= set(ARMS)
    assert read_recipe(RECIPE).model.features.form == "patches"
    assert {arm for better, worse, *_ in RANKINGS for arm in (better, worse)} <= set(ARMS)


def test_a_figure_is_a_mean_over_seeds_with_students_interval():
    assert summary([{"official": value} for value in (1, 2, 3)])["official"] == {"mean": 2, "half": 2.48, "seeds": 3}
    assert summary([{"official": 1.0}])["official"] == {"mean": 1, "half": None, "seeds": 1}
    assert summary([{"official": None}])["official"] == {"mean": None, "half": None, "seeds": 0}


def _arm(*values):
    return {seed: dict.fromkeys(FIGURES, value) for seed, value in enumerate(values)}


@pytest.mark.parametrize(
    ("full", "other", "verdict"),
    [
        ((60, 61, 62), (50, 51, 51), "holds"),
        ((50, 51, 51), (60, 61, 62), "opposite"),
        ((50, 60, 70), (52, 52, 52), "undecided"),
        ((50,), (40,), "one seed"),
    ],
)
def test_a_ranking_holds_if_the_interval_of_the_difference_paired_by_seed_is_above_0(full, other, verdict):
    (row,) = rankings({"full": _arm(*full), "without chains": _arm(*other)})
    assert (row["better"], row["worse"], row["printed"]) == ("full", "without chains", 5.74)
    assert row["official"]["verdict"] == verdict


def test_noise_that_the_seeds_share_cancels():
    (row,) = rankings({"full": _arm(20, 50, 80), "pooled": _arm(18, 48, 77)})
    assert row["official"]["verdict"] == "holds"
