"""Auto-UI runs end in the same weights, killed and resumed or on two ranks of ZeRO-2, and learn a real episode."""

import io
import json
import signal
from pathlib import Path

import pytest
import torch
import yaml
from helpers import tiny
from helpers.runs import chain_runs
from helpers.training import forked_ranks, forks
from rich.console import Console
from safetensors.torch import load_file

from vlm_agent.agents.auto_ui import AutoUiSettings
from vlm_agent.cli import OK, main
from vlm_agent.datasets.convert import convert
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.offline.run import AGENT, evaluate
from vlm_agent.recipe.run import read_recipe
from vlm_agent.training.train import train

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 2e-5
"""The tolerance of weights in float32: the gradients of two ranks are summed in another order."""

_RANK = """
import os, signal, sys
from pathlib import Path
import vlm_agent.models
from vlm_agent.cli import main
from vlm_agent.training.loop.preemption import Preemption

stops = Preemption.stops

def kill(self, step, steps, number):
    if step == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return stops(self, step, steps, number)

Preemption.stops = kill
sys.exit(main(["train", "--config", sys.argv[1]]))
"""
"""One rank of a run, which is killed after the step of the second argument."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """With shards, and their features."""
    folder = tmp_path_factory.mktemp("runs")
    tiny.write_shards(folder / "shards", [tiny.episode(number) for number in range(4)])
    chain_runs.write_features(folder / "shards", folder / "features")
    return folder


@pytest.fixture(scope="module")
def alone(folder) -> dict[str, torch.Tensor]:
    """The weights that one process trains, two rows a step."""
    assert main(["train", "--config", str(written(folder, "alone", accumulation=2))]) == OK
    return weights(folder / "alone")


def written(folder: Path, name: str, **training) -> Path:
    content = chain_runs.recipe(folder / "shards", folder / "features", folder / name, past_screens=1)
    content["training"] |= {"steps": 6, "save_steps": 2, "warmup_steps": 0, **training}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def script_of(recipe: Path) -> Path:
    script = recipe.with_suffix(".py")
    script.write_text(_RANK)
    return script


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


def furthest(one: dict, other: dict) -> float:
    assert one.keys() == other.keys()
    return max((one[name] - other[name]).abs().max().item() for name in one)


def test_a_killed_run_resumes_to_the_same_bits(folder, alone):
    recipe = written(folder, "killed", accumulation=2)
    printed = recipe.with_suffix(".log")
    assert forks.start(script_of(recipe), recipe, 5, output=printed).wait() == -signal.SIGKILL, printed.read_text()
    assert not (folder / "killed" / "run.json").exists()
    console = Console(file=io.StringIO(), width=200)
    train(read_recipe(recipe), console)
    steps = [line.split()[1] for line in console.file.getvalue().splitlines() if line.startswith("step ")]
    assert steps == ["5/6", "6/6"]
    assert furthest(alone, weights(folder / "killed")) == 0


def test_worker_processes_train_the_same_bits(folder, alone):
    recipe = written(folder, "workers", accumulation=2)
    assert main(["train", "--config", str(recipe), "--data.workers", "1"]) == OK
    assert furthest(alone, weights(folder / "workers")) == 0


@pytest.mark.slow
def test_two_ranks_of_zero_2_train_the_weights_of_one_process(folder, alone):
    recipe = written(folder, "zero2", deepspeed=str(ROOT / "deepspeed_configs" / "cpu_zero2.json"))
    _, printed = forked_ranks.launch(2, script_of(recipe), recipe, -1)
    assert (folder / "zero2" / "run.json").is_file(), printed
    assert furthest(alone, weights(folder / "zero2")) < TOLERANCE
    assert main(["train", "--config", str(written(folder, "short", accumulation=2, steps=1))]) == OK
    assert furthest(alone, weights(folder / "short")) > 100 * TOLERANCE


def test_other_features_are_not_mixed_into_a_run(folder, alone):
    pooled, patches = folder / "alone.yaml", folder / "patches"
    chain_runs.write_features(folder / "shards", patches, "patches")
    with pytest.raises(DatasetError, match=r"has form patches, and model\.features\.form is pooled"):
        train(read_recipe(pooled, {"data.features": str(patches), "output": str(folder / "other")}), Console())


def test_the_real_episode_is_learned_4_of_4(shared, tmp_path):
    """In validation and by its agent, with patches."""
    convert("aitw", [shared / "data/aitw_tfrecord"], tmp_path / "shards", console=Console(file=io.StringIO()))
    features = chain_runs.write_features(tmp_path / "shards", tmp_path / "features", "patches")
    content = chain_runs.recipe(tmp_path / "shards", features, tmp_path / "run", "patches")
    content["training"] |= {
        "steps": 150,
        "batch_size": 4,
        "warmup_steps": 0,
        "optimizer": {"name": "adamw", "learning_rate": 1e-2},
        "validation": {"split": "train", "episodes": 1, "steps": 50},
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    console = Console(file=io.StringIO())
    run = train(read_recipe(path), console)
    lines = [json.loads(line) for line in (tmp_path / "run" / "progress.jsonl").read_text().splitlines()]
    assert [line["eval_accuracy"] for line in lines if "eval_accuracy" in line][-1] == 1
    settings, benchmark = AutoUiSettings(run=str(run)), Benchmark(shards=tmp_path / "shards", split="train")
    scores = evaluate(settings, benchmark, tmp_path / "scores", console, controls=False)[AGENT]
    assert scores["official"]["google_apps"]["steps"] == 4
    assert scores["official"]["google_apps"]["partial_match"] == scores["strict"]["google_apps"]["partial_match"] == 100
