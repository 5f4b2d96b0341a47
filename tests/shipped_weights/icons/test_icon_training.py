"""The training of phone_icons_tiny: one command, resumable, safetensors only."""

import json
import math

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from shipped_weights import loop
from shipped_weights.icons.__main__ import main
from shipped_weights.icons.fonts import icons_of
from shipped_weights.icons.tiny import Batches, TinyTraining
from vlm_agent.errors import CheckpointError, DatasetError, RecipeError, TrainingError
from vlm_agent.recipe.yaml_file import validated
from vlm_agent.screens.icons import read_icons
from vlm_agent.screens.icons import tiny as weights
from vlm_agent.screens.icons.tiny import Network

KEYS = {
    "reader": "phone_icons_tiny",
    "sets": ["simulated_phone"],
    "steps": 6,
    "batch_size": 8,
    "learning_rate": 3e-3,
    "warmup_steps": 2,
    "save_steps": 2,
    "log_steps": 1,
}


def recipe(folder, **changes):
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({**KEYS, "output": str(folder / "run"), **changes}))
    return path


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("icons")
    assert main(["--config", str(recipe(folder))]) == 0
    return folder / "run"


def stop_before(monkeypatch, step):
    """The next training dies before this step, as if it was killed."""

    def one_step(settings, state, loss_of):
        if state.step == step:
            raise KeyboardInterrupt
        return real(settings, state, loss_of)

    real = loop._one_step
    monkeypatch.setattr(loop, "_one_step", one_step)


@pytest.mark.parametrize("step", [1, 3, 4, 5])
def test_a_killed_training_resumes_to_the_same_weights(uninterrupted, tmp_path, monkeypatch, capsys, step):
    config = recipe(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_before(patch, step)
        main(["--config", str(config)])
    assert not (tmp_path / "run" / weights.WEIGHTS).exists()
    assert main(["--config", str(config)]) == 0
    assert ("resuming after step" in capsys.readouterr().out) == (step >= 2)
    one, other = (load_file(run / weights.WEIGHTS) for run in (uninterrupted, tmp_path / "run"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    lines = (tmp_path / "run" / loop.LOG).read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5, 6]  # no step twice


def test_a_finished_run_is_not_trained_again(uninterrupted, capsys):
    before = (uninterrupted / weights.WEIGHTS).stat().st_mtime_ns
    config = recipe(uninterrupted.parent)
    assert main(["--config", str(config)]) == 0
    assert "complete" in capsys.readouterr().out
    assert (uninterrupted / weights.WEIGHTS).stat().st_mtime_ns == before
    assert not (uninterrupted / loop.CHECKPOINT).exists()


def test_a_folder_with_another_run_is_refused(uninterrupted, capsys):
    config = recipe(uninterrupted.parent, seed=5)
    assert main(["--config", str(config)]) == 1
    assert "settings.seed was 0, and is 5" in capsys.readouterr().err


def test_the_weights_can_be_read_and_guess_from_a_run_and_from_a_file(uninterrupted):
    crop = icons_of(["simulated_phone"])[0].mask
    for name in (f"phone_icons_tiny:{uninterrupted}", f"phone_icons_tiny:{uninterrupted / weights.WEIGHTS}"):
        guesses = read_icons(name).read([np.pad(crop, 9), np.zeros((1, 1, 3), np.uint8)])
        assert len(guesses[0]) == 5 and guesses[1] == ()
        scores = [guess.score for guess in guesses[0]]
        assert scores == sorted(scores, reverse=True) and 0 < sum(scores) <= 1


def test_the_weights_have_the_permissions_of_other_files(uninterrupted):
    modes = {(uninterrupted / name).stat().st_mode for name in (weights.WEIGHTS, "log.jsonl")}
    assert len(modes) == 1


def test_the_log_has_a_line_for_the_loss(uninterrupted):
    lines = [json.loads(line) for line in (uninterrupted / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert all(math.isfinite(line["loss"]) for line in lines)


def test_batches_depend_on_seed_and_step_alone():
    settings = TinyTraining(**{**KEYS, "output": "unused"})
    one, other = (Batches(icons_of(["simulated_phone"]), settings) for _ in range(2))
    one.at(0)
    assert all(torch.equal(a, b) for a, b in zip(one.at(3), other.at(3), strict=True))
    assert not torch.equal(one.at(3)[0], one.at(4)[0])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("sets", ["phosphor"], "must not be trained on"),
        ("sets", ["codicon"], "sets codicon are unknown"),
        ("stepz", 3, "unknown key stepz; did you mean steps"),
        ("steps", 0, "steps"),
        ("reader", "yolo", "reader must be one of clip, phone_icons_tiny"),
    ],
)
def test_a_recipe_that_cannot_be_run_is_explained_in_one_line(tmp_path, capsys, key, value, message):
    assert main(["--config", str(recipe(tmp_path, **{key: value}))]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_not_a_number_ends_the_training(tmp_path):
    network = Network(3)
    settings = validated(
        loop.LoopSettings,
        {**{k: v for k, v in KEYS.items() if k not in ("reader", "sets")}, "output": str(tmp_path)},
        "",
        RecipeError,
    )
    with pytest.raises(TrainingError, match="the loss of step 1 is nan; lower learning_rate"):
        nan = {"loss": network.head.weight.sum() * math.nan}
        loop.train(settings, network, lambda _: nan, lambda _: None, console(), "a test")


def test_a_damaged_checkpoint_is_named(tmp_path, monkeypatch, capsys):
    config = recipe(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_before(patch, 3)
        main(["--config", str(config)])
    checkpoint = tmp_path / "run" / loop.CHECKPOINT
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    assert main(["--config", str(config)]) == 1
    assert "checkpoint.safetensors is damaged" in capsys.readouterr().err


def test_the_rate_rises_then_falls_to_zero():
    settings = TinyTraining(**{**KEYS, "output": "unused", "steps": 100, "warmup_steps": 10})
    rates = [settings.rate(step) for step in range(100)]
    assert max(rates) == rates[10] == pytest.approx(3e-3)
    assert rates[:11] == sorted(rates[:11]) and rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] < 1e-5


def console():
    from vlm_agent.files.console import make_console

    return make_console()


def test_files_that_are_not_weights_are_named(tmp_path):
    (tmp_path / "cut.safetensors").write_bytes(b"12")
    with pytest.raises(CheckpointError, match=r"cut\.safetensors cannot be read"):
        read_icons(f"phone_icons_tiny:{tmp_path / 'cut.safetensors'}")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_icons(f"phone_icons_tiny:{tmp_path / 'absent'}")
    loop.save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match="does not hold weights of phone_icons_tiny"):
        read_icons(f"phone_icons_tiny:{tmp_path / 'other.safetensors'}")
    weights.write(Network(1), ["telepathy"], tmp_path / "new.safetensors")
    with pytest.raises(CheckpointError, match="meanings that this version lacks: telepathy"):
        read_icons(f"phone_icons_tiny:{tmp_path / 'new.safetensors'}")


def test_a_second_training_continues_from_the_weights_of_the_first(uninterrupted, tmp_path, capsys):
    config = recipe(tmp_path, start=str(uninterrupted), steps=1, learning_rate=1e-9)
    assert main(["--config", str(config)]) == 0
    one, other = (load_file(run / weights.WEIGHTS) for run in (uninterrupted, tmp_path / "run"))
    names = [name for name in one if name.endswith("weight")]
    assert all(torch.allclose(one[name], other[name], atol=1e-3) for name in names)
    plan = json.loads((tmp_path / "run/job/plan.json").read_text())
    assert len(plan["start_sha256"]) == 64
    assert main(["--config", str(recipe(tmp_path, start=str(tmp_path / "absent")))]) == 1
    assert "absent cannot be read" in capsys.readouterr().err


def test_two_trainings_do_not_write_to_one_folder(tmp_path):
    settings = TinyTraining(**{**KEYS, "output": str(tmp_path / "run")})
    with (
        loop.Job(tmp_path / "run", "x", "job/plan.json", "job/lock").locked(),
        pytest.raises(DatasetError, match="another process"),
    ):
        settings.run(console())
