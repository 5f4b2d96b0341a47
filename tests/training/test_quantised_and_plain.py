"""A quantised and a plain run of one checkpoint: trained, stopped in a slow save, resumed, merged and evaluated."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
import torch
import yaml
from helpers import tiny
from safetensors.torch import load_file

from vlm_agent.cli import main
from vlm_agent.errors import Stopped
from vlm_agent.training.journal import PROGRESS, read_progress
from vlm_agent.training.loop.preemption import STOPPED

STEPS = 6
LLAMA = tiny.LLAMA | {"hidden_size": 64, "intermediate_size": 64}  # rows of whole blocks, which nf4 needs on a CPU

_SLOW_SAVE = """
import os, signal, sys, time
from vlm_agent.training.run_folder import checkpoints
from vlm_agent.training.loop.preemption import Preemption
from vlm_agent.cli import main

stops = Preemption.stops

def stop(self, step, steps, number):
    if step == 2:  # takes effect after the next
        os.kill(os.getpid(), signal.SIGTERM)
    return stops(self, step, steps, number)

def slow_seal(*arguments):
    os.kill(os.getpid(), signal.SIGTERM)  # sent again, to who seems to hang
    time.sleep(2)
    seal(*arguments)

seal, checkpoints.seal, Preemption.stops = checkpoints.seal, slow_seal, stop
sys.exit(main(["train", "--config", sys.argv[1]]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Shards, and a checkpoint as it would be published."""
    folder = tmp_path_factory.mktemp("both")
    tiny.write_shards(folder / "shards", [tiny.episode(number) for number in range(4)])
    words = tiny.tokenizer()
    tiny.model(len(words), llama=LLAMA, visual_positions=True).save_pretrained(folder / "checkpoint")
    words.save_pretrained(folder / "checkpoint")
    return folder


def recipe(folder: Path, name: str, quantisation: str | None) -> Path:
    content = {
        "output": str(folder / name),
        "model": {
            "vlm": {"checkpoint": str(folder / "checkpoint")},
            "train": {"projector": "full", "language_model": "lora"},
            "lora": {"rank": 4, "dropout": 0.1},
            "quantisation": quantisation,
        },
        "action_language": {"bins": tiny.BINS},
        "data": {"shards": str(folder / "shards")},
        "training": {"steps": STEPS, "warmup_steps": 0, "log_steps": 1, "optimizer": {"learning_rate": 1e-2}},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def answers(folder: Path, checkpoint: Path) -> list[str]:
    output = checkpoint.with_name(f"{checkpoint.name}_evaluation")
    options = ["--shards", str(folder / "shards"), "--split", "train", "--output", str(output), "--controls", "none"]
    assert main(["evaluate", "--checkpoint", str(checkpoint), *options]) == 0
    assert (output / "metrics.json").is_file()
    return pyarrow.parquet.read_table(output / "predictions.parquet").column("text").to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize("quantisation", [None, "nf4"], ids=["plain", "nf4"])
def test_a_run_stopped_in_a_slow_save_is_resumed_merged_and_evaluated(folder, quantisation):
    name = f"stopped_{quantisation}"
    undisturbed, path = recipe(folder, f"undisturbed_{quantisation}", quantisation), recipe(folder, name, quantisation)
    assert main(["train", "--config", str(undisturbed)]) == 0

    command = [sys.executable, "-c", _SLOW_SAVE, str(path)]
    stopped = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert stopped.returncode == Stopped.STATUS, stopped.stderr
    assert "stopped by SIGTERM after step 3" in (folder / name / STOPPED).read_text()
    assert [step.name for step in (folder / name / "checkpoints").iterdir()] == ["checkpoint-3"]

    assert main(["train", "--config", str(path)]) == 0
    one, other = (load_file(folder / run / "model" / "adapter_model.safetensors") for run in (undisturbed.stem, name))
    assert all(torch.equal(one[key], other[key]) for key in one)
    losses = [line["loss"] for line in read_progress(folder / name / PROGRESS) if "loss" in line]
    assert len(losses) == STEPS and losses[-1] < losses[0]

    merged = folder / f"{name}_merged"
    assert main(["merge", str(folder / name), "--output", str(merged)]) == 0
    assert answers(folder, merged) == answers(folder, folder / name)
