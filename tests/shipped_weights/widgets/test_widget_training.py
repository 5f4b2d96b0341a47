"""`phone_widgets_tiny` learns, resumes to the same bytes, and its files are checked."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

from shipped_weights.loop import CHECKPOINT, FINISHED, LOG
from shipped_weights.widgets import __main__ as command
from shipped_weights.widgets.run import MODEL_FILE, train
from shipped_weights.widgets.settings import WidgetTraining, read_settings
from vlm_agent.episodes import WIDGET_KINDS, Widget
from vlm_agent.errors import CheckpointError, DatasetError, RecipeError, TrainingError
from vlm_agent.files.weight_files import digest_of
from vlm_agent.screens.widgets import read_widgets


def settings(output: Path, **changes) -> WidgetTraining:
    values = {
        "output": str(output),
        "steps": 6,
        "batch_size": 2,
        "side": 64,
        "sides": (64,),
        "save_steps": 2,
        "log_steps": 2,
        "warmup_steps": 1,
    }
    return WidgetTraining(**{**values, **changes})


def squares(number: int) -> tuple[np.ndarray, tuple[Widget, ...]]:
    """One bright square is a switch, on if it is red; one dark square is an image."""
    rng = np.random.default_rng(number)
    pixels, widgets = np.full((128, 64, 3), 128, np.uint8), []
    is_on = bool(rng.random() < 0.5)
    for top, kind, colour, on in (
        (0, "switch", (255, 0, 0) if is_on else (0, 0, 255), is_on),
        (64, "image", (0, 0, 0), None),
    ):
        high, y, x = int(rng.integers(12, 24)), int(rng.integers(2, 38)), int(rng.integers(2, 38))
        pixels[top + y : top + y + high, x : x + high] = colour
        widgets.append(Widget(kind, ((top + y) / 128, x / 64, high / 128, high / 64), on))
    return pixels, tuple(widgets)


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


class Killed(Exception):  # noqa: N818 (not an error)
    pass


def test_a_killed_run_resumes_to_the_same_bytes(tmp_path):
    train(settings(tmp_path / "whole"), squares, quiet())

    def killed_in_step_4(number: int):
        if number >= 7:
            raise Killed
        return squares(number)

    with pytest.raises(Killed):
        train(settings(tmp_path / "cut"), killed_in_step_4, quiet())
    assert (tmp_path / "cut" / CHECKPOINT).is_file() and not (tmp_path / "cut" / MODEL_FILE).exists()
    console = quiet()
    train(settings(tmp_path / "cut"), squares, console)
    assert "resuming after step 2" in console.file.getvalue()
    assert (tmp_path / "cut" / MODEL_FILE).read_bytes() == (tmp_path / "whole" / MODEL_FILE).read_bytes()
    assert not (tmp_path / "cut" / CHECKPOINT).exists()
    train(settings(tmp_path / "cut"), killed_in_step_4, console := quiet())  # complete: nothing is drawn
    assert "is complete" in console.file.getvalue()


def test_a_run_reports_progress_and_a_summary_and_refuses_other_settings(tmp_path):
    console = quiet()
    train(settings(tmp_path / "run"), squares, console)
    lines = console.file.getvalue().splitlines()
    assert lines[0].startswith("step 6 of 6: centres ") and ", boxes " in lines[0] and ", states " in lines[0]
    assert "12 screens in" in lines[-1]
    assert json.loads((tmp_path / "run" / FINISHED).read_text())["steps"] == 6
    logged = [json.loads(line) for line in (tmp_path / "run" / LOG).read_text().splitlines()]
    assert [list(line) for line in logged] == [["step", "centres", "boxes", "states", "seconds"]] * 3
    with pytest.raises(DatasetError, match=r"settings\.steps was 6, and is 7"):
        train(settings(tmp_path / "run", steps=7), squares, quiet())


def test_a_loss_that_is_not_a_number_ends_the_run(tmp_path):
    with pytest.raises(TrainingError, match="lower learning_rate"):
        train(settings(tmp_path / "run", learning_rate=1e30, max_grad_norm=1e30), squares, quiet())


def test_another_run_continues_from_its_weights_with_other_samples(tmp_path):
    first = train(settings(tmp_path / "first"), squares, quiet())
    numbers = []

    def noted(number: int):
        numbers.append(number)
        return squares(number)

    train(settings(tmp_path / "next", start=str(first), first_sample=100, steps=1), noted, quiet())
    assert numbers == [100, 101]


@pytest.mark.slow
def test_squares_are_found_with_kind_box_and_state(tmp_path):
    weights = train(settings(tmp_path / "run", steps=250, batch_size=8, save_steps=999), squares, quiet())
    detector = read_widgets(f"phone_widgets_tiny:{weights}")
    right = 0
    for number in range(10_000, 10_050):
        pixels, wanted = squares(number)
        found = detector.detect(pixels)
        right += [(one.kind, one.on) for one in found] == [(one.kind, one.on) for one in wanted] and np.allclose(
            [one.box for one in found], [one.box for one in wanted], atol=0.06
        )
    assert right >= 40


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    return train(settings(tmp_path_factory.mktemp("weights") / "run", steps=1), squares, quiet())


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1), (20_000, 40), (90, 200), (448, 208)])
def test_pictures_of_any_size_are_read(weights, size):
    assert isinstance(read_widgets(f"phone_widgets_tiny:{weights}").detect(np.zeros((*size, 3), np.uint8)), tuple)


def test_files_that_are_no_weights_are_refused_in_one_line(weights, tmp_path):
    path = tmp_path / "a.safetensors"

    def refused(message: str):
        with pytest.raises(CheckpointError, match=message) as error:
            read_widgets(f"phone_widgets_tiny:{path}")
        assert str(path) in str(error.value) and "\n" not in str(error.value)

    refused("cannot be read as safetensors")
    path.write_bytes(weights.read_bytes()[:1000])
    refused("cannot be read as safetensors")
    tensors = load_file(weights)
    described = {"kinds": ["dog"], "side": 64, "with_state": []}
    save_file(tensors, path)
    refused("has no weights of phone_widgets_tiny: 'phone_widgets_tiny' in its metadata")
    save_file(tensors, path, {"phone_widgets_tiny": "[1]"})
    refused("has no weights of phone_widgets_tiny: .* in its metadata")
    save_file(tensors, path, {"phone_widgets_tiny": json.dumps(described)})
    refused("detects other kinds of widgets")
    described["kinds"] = WIDGET_KINDS
    name = next(iter(tensors))
    for changed, message in (
        ({"a": torch.zeros(2)}, "does not fit the network of this version"),
        (tensors | {name: torch.full_like(tensors[name], torch.nan)}, "not numbers"),
    ):
        whole = described | {"sha256": digest_of(changed, described)}
        save_file(changed, path, {"phone_widgets_tiny": json.dumps(whole)})
        refused(message)
    save_file(tensors, path, {"phone_widgets_tiny": json.dumps(described)})
    refused("differs from its SHA-256, or has none")


def test_a_damaged_checkpoint_is_refused_by_its_name(tmp_path):
    def killed(number: int):
        if number >= 7:
            raise Killed
        return squares(number)

    with pytest.raises(Killed):
        train(settings(tmp_path / "run"), killed, quiet())
    checkpoint = tmp_path / "run" / CHECKPOINT
    checkpoint.write_bytes(checkpoint.read_bytes()[:500])
    with pytest.raises(
        CheckpointError, match=r"checkpoint\.safetensors is damaged .*remove it to train from the start"
    ):
        train(settings(tmp_path / "run"), squares, quiet())


def test_the_command_reads_a_recipe_and_its_errors_are_one_line(tmp_path, capsys):
    recipe = tmp_path / "a.yaml"
    recipe.write_text("output: nowhere\nsteps: 9\nbatch_size: 2\nsides: [32]\nside: 32\n")
    assert command.main(["--config", str(recipe), "--output", str(tmp_path / "run"), "--steps", "1"]) == 0
    assert (
        read_widgets(f"phone_widgets_tiny:{tmp_path / 'run' / MODEL_FILE}").detect(np.zeros((64, 32, 3), np.uint8))
        == ()
    )
    recipe.write_text("output: nowhere\nstep: 9\n")
    assert command.main(["--config", str(recipe)]) == 1
    assert "unknown key step; did you mean steps?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main([])
    assert "the following arguments are required: --config" in capsys.readouterr().err
    with pytest.raises(RecipeError, match="unknown key step"):
        read_settings(recipe)


def test_the_shipped_recipe_trains_with_the_settings_of_the_first_part():
    """Keys that the recipe leaves out have defaults, and a run is repeated only with the same ones."""
    recipe = Path(__file__).parents[3] / "shipped_weights" / "widgets" / "phone_widgets_tiny.yaml"
    assert read_settings(recipe).model_dump() == {
        "output": "runs/phone_widgets_tiny",
        "start": None,
        "seed": 0,
        "steps": 1800,
        "batch_size": 4,
        "first_sample": 0,
        "side": 320,
        "sides": (256, 288, 320, 352, 384),
        "learning_rate": 2e-3,
        "weight_decay": 1e-4,
        "warmup_steps": 50,
        "decay_steps": 800,
        "max_grad_norm": 10.0,
        "box_weight": 1.0,
        "state_weight": 0.2,
        "bf16": True,
        "save_steps": 50,
        "log_steps": 50,
    }
