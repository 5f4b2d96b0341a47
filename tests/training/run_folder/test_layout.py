"""The recipe in a run folder states what the run was trained with."""

import pytest
from helpers import tiny

from vlm_agent.recipe.run import Recipe, read_recipe
from vlm_agent.training.run_folder import layout
from vlm_agent.training.run_folder.layout import claim, refuse_other_runs, with_precision


def recipe_of(run, bf16) -> Recipe:
    content = tiny.recipe(run.parent / "shards", run)
    return Recipe(**content | {"training": content["training"] | {"bf16": bf16}})


@pytest.mark.parametrize("gains", [True, False])
def test_a_run_with_automatic_precision_keeps_it_on_another_machine(tmp_path, monkeypatch, gains):
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.setattr(layout, "has_bf16", lambda: gains)
    started = with_precision(recipe_of(run, "auto"), run)
    assert started.training.bf16 is gains
    claim(run, started)
    monkeypatch.setattr(layout, "has_bf16", lambda: not gains)
    resumed = with_precision(recipe_of(run, "auto"), run)
    assert resumed == started == read_recipe(run / "recipe.yaml")
    refuse_other_runs(run, resumed)


@pytest.mark.parametrize("bf16", [True, False])
def test_a_precision_that_the_recipe_names_stays(tmp_path, monkeypatch, bf16):
    monkeypatch.setattr(layout, "has_bf16", lambda: not bf16)
    assert with_precision(recipe_of(tmp_path / "run", bf16), tmp_path / "run").training.bf16 is bf16


def test_a_run_of_an_earlier_version_which_recorded_auto_resumes(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    claim(run, recipe_of(run, "auto"))
    resumed = with_precision(recipe_of(run, "auto"), run)
    refuse_other_runs(run, resumed)
    assert resumed.training.bf16 == "auto"
