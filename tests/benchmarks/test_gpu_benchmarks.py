"""The benchmarks for a GPU run on a CPU at a small size, and what they compute without a GPU is right."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import train_step

ROOT = Path(__file__).parents[2]
GPU = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu"]
STAGE = """
import json, sys
name, commit, output = sys.argv[1], sys.argv[-3], sys.argv[-1]
if name == "bad":
    raise SystemExit("this stage fails")
record = {"commit": commit, "hardware": "a GPU", "command": f"python -m benchmarks.gpu {name} --device cpu"}
open(output, "w").write(json.dumps(record | {"figures": {"seconds": 1.0}}))
"""
"""In place of benchmarks.gpu, which takes seconds to import."""

HOURS = """
import argparse, pathlib, sys
from benchmarks.gpu import hour, record
folder = pathlib.Path(sys.argv[1])
hour.SCRIPT = (str(folder / "stage.py"),)
hour.stages = lambda options: [hour.Stage("bad", ("bad",)), hour.Stage("good", ("good",))]
record.hardware = lambda device: "a GPU"
for commit in ("one", "one", "two", "two-dirty", "two-dirty"):
    print("status", hour.main(argparse.Namespace(output=folder, commit=commit, device="cpu", only=None)))
"""


def run(tmp_path: Path, *arguments: str) -> dict:
    output = tmp_path / "figures.json"
    command = [
        *GPU,
        *arguments,
        "--device",
        "cpu",
        "--output",
        str(output),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(output.read_text(encoding="utf-8"))["figures"]


@pytest.fixture(scope="module")
def trained():
    """A model on its way to be trained, and a row."""
    options = argparse.Namespace(shape="qwen_7b_head", batch=1, episodes=1, device="cpu")
    run, episodes = train_step.prepare(options)
    return run, train_step.make_row(run, episodes, 0)


@pytest.mark.parametrize("name", train_step.UNDO)
def test_a_model_without_an_operation_has_the_same_loss_and_runs_it_again_afterwards(trained, name):
    run, (row, items) = trained

    def forwards():
        return {path: vars(module).get("forward") for path, module in run.model.named_modules()}

    before = forwards()
    with torch.no_grad():
        loss = run.loss(row, items).item()
        with train_step.without(run.model, [name]):
            assert (forwards() != before) == (name in {"patches", "lora", "norms", "swiglu"})
            assert run.loss(row, items).item() == pytest.approx(loss, rel=0.01)
        assert forwards() == before
        assert run.loss(row, items).item() == loss


def test_checkpointing_ends_with_its_block(trained):
    run, _ = trained
    layers = [module for module in run.model.modules() if hasattr(module, "gradient_checkpointing")]
    with train_step.checkpointed(run.model, 3):
        assert any(layer.gradient_checkpointing for layer in layers)
    assert not any(layer.gradient_checkpointing for layer in layers)


@pytest.fixture(scope="module")
def memory(tmp_path_factory) -> dict:
    """The memory of a Qwen2.5-VL whose head has 7B's share of the work, as recipes train it."""
    options = ["--shape", "qwen_7b_head", "--episodes", "2", "--checkpointing"]
    return run(tmp_path_factory.mktemp("memory"), "memory", *options)


def test_the_dry_run_estimates_the_memory_of_a_step_within_a_tenth(memory):
    assert memory["peak_over_estimate"] == pytest.approx(1, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("checkpointed", ["0", "3", "7"])
def test_the_dry_run_estimates_the_memory_of_a_step_with_some_layers_checkpointed_within_a_tenth(
    tmp_path, checkpointed
):
    figures = run(tmp_path, "memory", "--shape", "qwen_7b_head", "--episodes", "2", "--checkpointing", checkpointed)
    assert figures["peak_over_estimate"] == pytest.approx(1, abs=0.1)


def test_one_variable_length_call_per_layer_replaces_a_call_per_window_and_sentence(memory):
    layers, tower, windowed, sentences, screens = 8, 4, 3, 2, 16
    windows = 4 * 2  # of 448 x 224 pixels, 112 a side
    assert memory["attention_calls"] == {
        "varlen": {"vision": tower, "language_model": layers},
        "loop": {"vision": screens * (windowed * windows + 1), "language_model": layers * sentences},
    }


def test_evaluation_is_measured_after_a_prefill_alone_and_with_every_step_decoded(tmp_path):
    figures = run(tmp_path, "evaluate", "--shape", "llama_vit", "--batch", "1", "--episodes", "1", "--rounds", "1")
    assert (figures["prefill"]["from_prefill"], figures["decoding"]["from_prefill"]) == (1, 0)
    assert figures["prefill"]["steps_per_second"] > figures["decoding"]["steps_per_second"] > 0
    assert 0.5 < figures["agreement"]["as_evaluated"] <= 1


@pytest.mark.slow
def test_evaluation_is_measured_without_each_faster_operation(tmp_path):
    sizes = ("--batch", "1", "--episodes", "1", "--rounds", "1")
    figures = run(
        tmp_path, "evaluate", "--shape", "qwen_7b_head", *sizes, "--undo", "merged", "graphs", "heads", "varlen"
    )
    assert figures["agreement"]["as_evaluated"] == figures["agreement"]["adapter_apart"]


def test_an_hour_survives_a_failing_stage_and_keeps_the_figures_of_its_commit(tmp_path):
    (tmp_path / "stage.py").write_text(STAGE)
    command = [sys.executable, "-W", "ignore", "-c", HOURS, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    first, *others, rest = done.stdout.split("status 1\n")
    assert (len(others), rest) == (4, ""), done.stderr
    assert "1 of 2 stages ok" in first
    assert "FAILED: this stage fails" in first
    assert ["kept" in each for each in (first, *others)] == [False, True, False, False, False]
    assert not (tmp_path / "bad.json").exists()
    assert (tmp_path / "summary.txt").read_text() in others[-1]
    assert (tmp_path / "logs" / "bad.log").exists()


@pytest.mark.slow
def test_the_whole_first_hour_runs_on_a_cpu(tmp_path):
    command = [
        *GPU,
        "hour",
        "--device",
        "cpu",
        "--output",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert json.loads((tmp_path / "sharding.json").read_text())["figures"]["losses"].keys() == {"ddp", "zero2", "zero3"}
