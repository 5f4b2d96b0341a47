"""The recipe in a run folder states what the run was trained with."""

from io import StringIO

import pytest
from helpers import tiny
from rich.console import Console

from vlm_agent.recipe.run import Recipe, read_recipe
from vlm_agent.training.dry_run.start import check_recipe
from vlm_agent.training.run_folder import layout
from vlm_agent.training.run_folder.layout import claim, refuse_other_runs, with_absolute_paths, with_precision
from vlm_agent.training.train import train


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


def test_folders_of_a_recipe_are_absolute_and_a_check_takes_the_run_for_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "encoder").mkdir()
    content = recipe_of(tmp_path / "run", True).model_dump()
    content["data"] |= {"references": {"encoder": "encoder"}}
    recipe = Recipe.model_validate(content)
    absolute = with_absolute_paths(recipe)
    assert absolute.data.references.encoder == str(tmp_path / "encoder")
    claim(tmp_path / "run", absolute)
    check_recipe(recipe, lambda path: True)


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


def test_training_records_the_precision_that_it_chose(tmp_path, monkeypatch):
    shards = tiny.write_shards(tmp_path / "shards", [tiny.episode()])
    content = tiny.recipe(shards, tmp_path / "run")
    recipe = Recipe(**content | {"training": content["training"] | {"bf16": "auto"}})
    monkeypatch.setattr(layout, "has_bf16", lambda: True)
    train(recipe, Console(file=StringIO()))
    assert read_recipe(tmp_path / "run/recipe.yaml").training.bf16 is True
    monkeypatch.setattr(layout, "has_bf16", lambda: False)
    train(recipe, Console(file=StringIO()))  # finished, and still of the same recipe
