"""The package's own commands on every GPU of this machine: whether sharded runs agree, resume, merge and evaluate.

Trains the tiny base that comes with the package by LoRA on simulated phones, with torchrun, one rank per GPU (one on a
CPU). `ddp`: a run that the other checks read. `sharding`: DDP, ZeRO-2 and ZeRO-3 from one seed, loss by loss. `resume`:
a run that receives SIGTERM and is started again, against one that was not stopped. `merge` and `evaluation`: of the DDP
run. `ok` is the verdict of each. All of them work in --folder and keep what is finished there.
"""

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import torch

from vlm_agent.training.journal import PROGRESS, read_progress

CHECKS = ("ddp", "sharding", "resume", "merge", "evaluation")
TOLERANCE = 0.01
"""Relative difference of losses that counts as equal: other orders of summation in bfloat16."""
EPISODES = 60
RECIPE = Path("recipes/phone_vlm_tiny_lora.yaml")
ROOT = Path(__file__).resolve().parents[2]
STOP_AFTER = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", choices=CHECKS, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="of a run (default 20)")
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="episodes to evaluate (default 50)")


def measure(options: argparse.Namespace) -> dict:
    options.folder = options.folder.resolve()
    prepare(options.folder)
    return {"ddp": ddp, "sharding": sharding, "resume": resume, "merge": merge, "evaluation": evaluation}[
        options.check
    ](options)


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "shards" / "manifest.json").exists():
        return
    aitw = folder / "aitw"
    if not (aitw / "splits.json").exists():
        run("simulate", "--output", aitw, "--episodes", EPISODES)
    run("convert", "--input", aitw, "--output", folder / "shards", "--splits", aitw / "splits.json")


def ddp(options: argparse.Namespace) -> dict:
    losses = train(options, "ddp")
    return {"ok": len(losses) == options.steps, "ranks": ranks(options), "losses": losses}


def sharding(options: argparse.Namespace) -> dict:
    prefix = "cpu_" if options.device == "cpu" else ""
    losses = {"ddp": train(options, "ddp")}
    for stage in ("zero2", "zero3"):
        config = ROOT / "deepspeed_configs" / f"{prefix}{stage}.json"
        losses[stage] = train(options, stage, "--training.deepspeed", config)
    apart = {name: difference(losses["ddp"], each) for name, each in losses.items()}
    return {"ok": max(apart.values()) <= TOLERANCE, "ranks": ranks(options), "difference": apart, "losses": losses}


def resume(options: argparse.Namespace) -> dict:
    whole = train(options, "ddp")
    stopped = options.folder / "stopped"
    process = subprocess.Popen(train_command(options, "stopped"), cwd=ROOT)
    while process.poll() is None and len(progress(stopped)) < STOP_AFTER:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.wait()
    steps_before = len(progress(stopped))
    was_stopped = (stopped / "stopped").exists()
    resumed = train(options, "stopped")
    apart = difference(whole, resumed)
    return {
        "ok": was_stopped and apart <= TOLERANCE,
        "stopped": was_stopped,
        "steps_before": steps_before,
        "difference": apart,
    }


def merge(options: argparse.Namespace) -> dict:
    train(options, "ddp")
    seconds = run("merge", options.folder / "ddp", "--output", options.folder / f"merged-{time.time_ns()}")
    return {"ok": True, "seconds": seconds}


def evaluation(options: argparse.Namespace) -> dict:
    """Seconds include the start and the report."""
    train(options, "ddp")
    output = options.folder / f"evaluation-{time.time_ns()}"
    where = ["--checkpoint", options.folder / "ddp", "--shards", options.folder / "shards", "--output", output]
    seconds = run("evaluate", *where, "--limit", options.limit, "--controls", "none", "--agent.bf16", "true")
    steps = pq.read_metadata(output / "predictions.parquet").num_rows
    return {"ok": steps > 0, "seconds": seconds, "steps": steps, "steps_per_second": steps / seconds}


def train(options: argparse.Namespace, name: str, *words) -> dict[int, float]:
    """Losses by step of a run, which is resumed or left as it is if it exists."""
    if not (options.folder / name / "run.json").exists():
        subprocess.run(train_command(options, name, *words), cwd=ROOT, check=True)
    return progress(options.folder / name)


def train_command(options: argparse.Namespace, name: str, *words) -> list[str]:
    launcher = ["torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks(options))]
    # LoRA alone, without dropout: the same weights in every sharding.
    frozen = [word for part in ("embeddings", "norm", "head") for word in (f"--model.train.{part}", "frozen")]
    every = ["--training.steps", options.steps, "--training.log_steps", 1, "--training.save_steps", options.steps]
    where = ["--config", RECIPE, "--output", options.folder / name, "--data.shards", options.folder / "shards"]
    train = ["-m", "vlm_agent.cli", "train", *where, *every, *frozen, *words]
    return [sys.executable, "-m", *launcher, *map(str, train)]


def ranks(options: argparse.Namespace) -> int:
    return 1 if options.device == "cpu" else torch.cuda.device_count()


def progress(run_folder: Path) -> dict[int, float]:
    """Losses by step."""
    return {line["step"]: line["loss"] for line in read_progress(run_folder / PROGRESS) if "loss" in line}


def difference(one: dict[int, float], other: dict[int, float]) -> float:
    """The largest of any step, relative. Infinite for runs of unequal steps."""
    if one.keys() != other.keys():
        return float("inf")
    return max(abs(one[step] - other[step]) / abs(one[step]) for step in one)


def run(*words) -> float:
    """Seconds of a command of the package."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", "vlm_agent.cli", *map(str, words)], cwd=ROOT, check=True)
    return time.monotonic() - started
