"""DeepSpeed on two real ranks trains the weights of one process, and resumes a stopped run."""

from pathlib import Path

import pytest
import yaml
from helpers import tiny
from helpers.models import tiny_qwen
from helpers.training import forked_ranks
from safetensors.torch import load_file

from vlm_agent.cli import main
from vlm_agent.errors import Stopped
from vlm_agent.models.build import load

ROOT = Path(__file__).resolve().parents[2]
STEPS = 6
TOLERANCE = 2e-5
"""The tolerance of an adapter's weights in float32: the gradients of two ranks are summed in another order."""

_RANK = """
import os, signal, sys
from pathlib import Path
import vlm_agent.models
from deepspeed import zero
from vlm_agent.cli import main
from vlm_agent.training import train
from vlm_agent.training.loop.preemption import Preemption

gathered = []
enter = zero.GatheredParameters.__enter__

def counted(self):
    enter(self)
    gathered.append(sum(parameter.ds_numel for parameter in getattr(self, "params", [])))

zero.GatheredParameters.__enter__ = counted

run_steps, stops = train.run_steps, Preemption.stops

def run(*arguments):
    gathered.clear()
    run_steps(*arguments)

def stop(self, step, steps, number):
    if step == int(sys.argv[2]) - 1 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGUSR1)
    return stops(self, step, steps, number)

train.run_steps, Preemption.stops = run, stop
status = main(["train", "--config", sys.argv[1]])
if gathered:
    Path(sys.argv[1]).with_suffix(".gathered").write_text(str(max(gathered)))
sys.exit(status)
"""
"""One rank of a run. Rank 1 sends itself SIGUSR1 before the step of the second argument. The largest number of weights
that were gathered at a time during training is written next to the recipe."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """With shards, and a checkpoint of a tiny Qwen2.5-VL as it would be published."""
    folder = tmp_path_factory.mktemp("deepspeed")
    tiny.write_shards(folder / "shards", [tiny.episode(number) for number in range(6)])
    recipe = tiny_qwen.recipe("qwen2_5_vl")
    words = tiny_qwen.tokenizer(recipe)
    tiny_qwen.model(recipe, words).save_pretrained(folder / "checkpoint")
    words.save_pretrained(folder / "checkpoint")
    return folder


@pytest.fixture(scope="module")
def alone(folder) -> dict:
    """The adapter that one process trains, two rows a step."""
    assert main(["train", "--config", str(written(folder, "alone", accumulation=2))]) == 0
    return adapter(folder / "alone")


def written(folder: Path, name: str, **training) -> Path:
    content = {
        "output": str(folder / name),
        "model": {
            "vlm": {"checkpoint": str(folder / "checkpoint")},
            "min_pixels": 4 * 64,
            "max_pixels": 24 * 64,
            "lora": {"rank": 4, "dropout": 0},
        },
        "action_language": {"bins": tiny.BINS},
        "data": {"shards": str(folder / "shards")},
        "training": {
            "steps": STEPS,
            "batch_tokens": 300,
            "log_steps": 2,
            "warmup_steps": 0,
            "optimizer": {"learning_rate": 1e-3},
            "validation": {"split": "train", "episodes": 3, "steps": 3},
            **training,
        },
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def launch(recipe: Path, stop_at: int = -1, ranks: int = 2) -> tuple[list[int], str]:
    """The ranks' statuses, and what they printed. They run in the folder of the recipe, which has no
    deepspeed_configs/."""
    script = recipe.with_suffix(".py")
    script.write_text(_RANK)
    return forked_ranks.launch(ranks, script, recipe, stop_at)


def adapter(run: Path) -> dict:
    return load_file(run / "model" / "adapter_model.safetensors")


def furthest(one: dict, other: dict) -> float:
    assert one.keys() == other.keys()
    return max((one[name] - other[name]).abs().max().item() for name in one)


@pytest.mark.parametrize("stage", ["cpu_zero2", "cpu_zero3"])
def test_two_ranks_train_the_adapter_of_one_process(folder, alone, stage):
    recipe = written(folder, stage, deepspeed=f"deepspeed_configs/{stage}.json")  # the shipped file
    _, printed = launch(recipe)
    assert (folder / stage / "run.json").is_file(), printed
    assert "FutureWarning" not in printed
    trained = adapter(folder / stage)
    assert furthest(alone, trained) < TOLERANCE
    assert max(weight.abs().max().item() for name, weight in trained.items() if "lora_B" in name) > 100 * TOLERANCE
    load(folder / stage)


def test_a_zero3_run_that_was_stopped_resumes_to_the_same_adapter(folder, alone):
    recipe = written(folder, "stopped", deepspeed=str(ROOT / "deepspeed_configs" / "cpu_zero3.json"))
    statuses, printed = launch(recipe, stop_at=3)
    assert statuses == [Stopped.STATUS] * 2, printed
    assert "SIGUSR1 after step 3" in (folder / "stopped" / "stopped").read_text()
    assert not (folder / "stopped" / "run.json").exists()
    _, printed = launch(recipe)
    assert (folder / "stopped" / "run.json").is_file(), printed
    assert not (folder / "stopped" / "stopped").exists()
    assert furthest(alone, adapter(folder / "stopped")) < TOLERANCE


def test_zero3_saves_a_complete_llama_vit_with_its_frozen_weights(folder):
    content = tiny.recipe(folder / "shards", folder / "plain")
    content["model"]["train"] |= {"vision": "frozen", "embeddings": "frozen"}
    content["training"]["optimizer"]["name"] = "adamw"
    plain, cut = folder / "plain.yaml", folder / "cut.yaml"
    plain.write_text(yaml.safe_dump(content))
    assert main(["train", "--config", str(plain)]) == 0
    content["output"] = str(folder / "cut")
    content["training"]["deepspeed"] = str(ROOT / "deepspeed_configs" / "cpu_zero3.json")
    cut.write_text(yaml.safe_dump(content))
    _, printed = launch(cut, ranks=1)
    assert (folder / "cut" / "run.json").is_file(), printed
    one, other = (load_file(folder / name / "model" / "model.safetensors") for name in ("plain", "cut"))
    assert furthest(one, other) < TOLERANCE
    assert int(cut.with_suffix(".gathered").read_text()) <= max(weight.numel() for weight in other.values())


_INFINITE = """
import sys
import torch
from vlm_agent.cli import main
from vlm_agent.training.zero import ZeroEngine

class Infinite(torch.autograd.Function):
    forward = staticmethod(lambda context, loss: loss.clone())
    backward = staticmethod(lambda context, gradient: gradient * float("inf"))

backward = ZeroEngine.backward
ZeroEngine.backward = lambda self, loss: backward(self, Infinite.apply(loss))
sys.exit(main(["train", "--config", sys.argv[1]]))
"""


def test_an_infinite_gradient_stops_a_zero_run_that_would_leave_the_update_out(folder):
    recipe = written(folder, "infinite", deepspeed=str(ROOT / "deepspeed_configs" / "cpu_zero2.json"))
    script = recipe.with_suffix(".py")
    script.write_text(_INFINITE)
    statuses, printed = forked_ranks.launch(1, script, recipe)
    assert statuses == [1], printed
    assert "the gradients are not finite after 0 steps, though the loss is one; the step read " in printed
