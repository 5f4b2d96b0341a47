"""`training.track`: what a tracker receives, that a resumed run continues, and trackers that are not installed."""

import io
import json
import os
import shutil
import sys

import pytest
import yaml
from helpers import tiny
from helpers.training import trackers
from rich.console import Console

from vlm_agent.cli import FAILED, OK, main
from vlm_agent.errors import RecipeError
from vlm_agent.recipe.run import TRACKERS, read_recipe
from vlm_agent.training import journal
from vlm_agent.training.journal import PROGRESS, read_progress
from vlm_agent.training.train import train

VALIDATED = {"training.validation": "{split: train, episodes: 2, steps: 2}"}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return tiny.write_shards(tmp_path_factory.mktemp("shards"), [tiny.episode(number) for number in range(4)])


@pytest.fixture
def recipe(shards, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(tiny.recipe(shards, tmp_path / "my run")))
    return path


@pytest.fixture
def without(monkeypatch):
    """Forgets the imported stand-ins at the end."""
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in TRACKERS]:
        del sys.modules[name]


def trained(path, track, **others):
    overrides = {"training.track": track, "training.save_steps": "2", **VALIDATED, **others}
    return train(read_recipe(path, overrides), Console(file=io.StringIO()))


def test_every_tracker_of_a_recipe_can_be_started():
    assert tuple(journal._TRACKERS) == TRACKERS


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_receives_the_progress_of_the_run_and_its_recipe(recipe, tmp_path, monkeypatch, without, name):
    trackers.install(monkeypatch, tmp_path, name)
    run = trained(recipe, name)
    assert not [variable for variable in os.environ if variable.startswith(("WANDB_", "MLFLOW_", "HF_MLFLOW_"))]
    (start,) = trackers.calls(tmp_path, "start")
    assert start["project"] == "vlm-agent"
    recorded = json.loads((run / "tracking.json").read_text())
    assert recorded["tracker"] == name
    assert recorded["run"] == start["run"]
    assert recorded["name"].startswith("my_run-")
    logged = trackers.calls(tmp_path, "log")
    lines = read_progress(run / PROGRESS)
    assert [line["step"] for line in logged] == [line["step"] for line in lines]
    for sent, line in zip(logged, lines, strict=True):
        names = {key.removeprefix("train/").replace("eval/", "eval_") for key in sent["values"]} - {"global_step"}
        assert names == line.keys() - {"step", "steps", "time", "seconds", "total_seconds", "eta_seconds"}
    assert logged[0]["values"]["train/loss"] == lines[0]["loss"]
    configured = {key: value for call in trackers.calls(tmp_path, "config") for key, value in call["config"].items()}
    assert configured["training.steps"] in (3, "3")
    assert configured["data.shards"] == yaml.safe_load((run / "recipe.yaml").read_text())["data"]["shards"]
    assert not {"output_dir", "logging_dir", "_name_or_path"} & configured.keys()
    assert len(trackers.calls(tmp_path, "finish")) == 1


@pytest.mark.parametrize("name", TRACKERS)
def test_a_resumed_run_continues_the_tracked_run(recipe, tmp_path, monkeypatch, without, name):
    trackers.install(monkeypatch, tmp_path, name)
    for variable in ("WANDB_RUN_ID", "MLFLOW_RUN_ID"):
        monkeypatch.setenv(variable, "of another program")
    run = trained(recipe, name)
    recorded = (run / "tracking.json").read_bytes()
    shutil.rmtree(run / "checkpoints" / "checkpoint-3", ignore_errors=True)
    (run / "run.json").unlink()
    trained(recipe, name)
    first, second = trackers.calls(tmp_path, "start")
    assert first["run"] == second["run"] != "of another program"
    assert (first["resume"], second["resume"]) == ("allow", "allow")
    assert (run / "tracking.json").read_bytes() == recorded
    # MLflow refuses a second value of a parameter, such as another number of workers.
    configured = trackers.calls(tmp_path, "config")
    assert len([call for call in configured if "output" in call["config"]]) == (1 if name == "mlflow" else 2)


def test_two_runs_of_one_name_are_tracked_apart(shards, tmp_path, monkeypatch, without):
    trackers.install(monkeypatch, tmp_path, "wandb")
    for folder in ("one", "two"):
        path = tmp_path / f"{folder}.yaml"
        path.write_text(yaml.safe_dump(tiny.recipe(shards, tmp_path / folder / "run")))
        trained(path, "wandb")
    first, second = trackers.calls(tmp_path, "start")
    assert first["run"] != second["run"]


def test_tracking_may_be_turned_off_or_changed_on_resume_and_changes_no_weight(
    recipe, shards, tmp_path, monkeypatch, without
):
    trackers.install(monkeypatch, tmp_path, "trackio")
    run = trained(recipe, "trackio")
    weights = (run / "model" / "model.safetensors").read_bytes()
    (run / "run.json").unlink()
    trained(recipe, "off")
    assert len(trackers.calls(tmp_path, "start")) == 1
    path = tmp_path / "plain.yaml"
    path.write_text(yaml.safe_dump(tiny.recipe(shards, tmp_path / "plain")))
    plain = trained(path, "off")
    assert not (plain / "tracking.json").exists()
    assert (plain / "model" / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_is_not_installed_is_one_line_before_the_data_is_read(recipe, tmp_path, capsys, name):
    keys = ["--data.shards", str(tmp_path / "none"), "--training.track", name]
    assert main(["train", "--config", str(recipe), *keys]) == FAILED
    error = capsys.readouterr().err.strip()
    assert f"training.track: {name} is not installed" in error
    assert f"pip install {name}" in error
    assert "\n" not in error
    assert not (tmp_path / "my run" / "recipe.yaml").exists()


def test_an_unknown_tracker_is_named_with_the_known_ones(recipe):
    with pytest.raises(RecipeError, match=r"training.track: .*'excel' is unknown; choose one of off, wandb"):
        read_recipe(recipe, {"training.track": "excel"})


def test_off_needs_no_quotes(recipe):
    assert main(["train", "--config", str(recipe), "--training.track", "off"]) == OK
    assert read_recipe(recipe).training.track == "off"
