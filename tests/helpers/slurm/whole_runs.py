"""What the tests that train on two nodes share: a recipe, the wait for a training to begin, the comparison of runs."""

import json
from pathlib import Path

import yaml
from helpers import tiny
from helpers.slurm.cluster import soon
from helpers.slurm.workplace import Workplace
from safetensors.torch import load_file

from vlm_agent.cli import main
from vlm_agent.files import read_checked
from vlm_agent.training.journal import PROGRESS

SECONDS = 300


def write_recipe(folder: Path, output: str, **training) -> Path:
    """The recipe of `shards` into `output`, both below `folder`; one sentence a row.

    The element loss weighs every row alike, however many elements it has, so that other rows a process would be another
    loss. It is left out.
    """
    recipe = tiny.recipe("shards", output)
    recipe["model"]["element_loss"] = 0
    recipe["training"] |= {"batch_size": 1} | training
    path = folder / f"{output}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def in_one_process(recipe: Path, *options: str) -> Path:
    """The run folder of a recipe that is trained and evaluated here, with `options` of the evaluation."""
    run = yaml.safe_load(recipe.read_text())["output"]
    assert main(["train", "--config", str(recipe)]) == 0
    words = ["--checkpoint", run, "--shards", "shards", "--output", f"{run}/evaluation", "--controls", "none"]
    assert main(["evaluate", *words, *options]) == 0
    return Path(run).resolve()


def wait_for_training(workplace: Workplace, run: Path, job: str, start: int) -> None:
    """For a start, counted from 1: until rank 0 has described the model, which it does just before the first step."""
    log = run / "logs" / job / "rank-0.log"
    soon(
        lambda: log.exists() and "trained" in log.read_text().partition(f"start {start} on")[2],
        SECONDS,
        lambda: workplace.log("train", job) + workplace.run("squeue", "--long"),
    )


def lose_node(workplace: Workplace, node: str, job: str, name: str = "train") -> None:
    """Takes the node down under a job of that name, and back when the job is queued again."""
    workplace.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    soon(lambda: workplace.cluster.states(job) == {"PENDING"}, SECONDS, lambda: workplace.log(name, job))
    workplace.run("scontrol", "update", f"nodename={node}", "state=resume")


def ledger(run: Path) -> list[tuple[str, int]]:
    """(event, steps in a checkpoint) of each line but `stopped`, which a job writes only if a dying node lets it."""
    lines = [line.split("\t") for line in (run / "slurm.tsv").read_text().splitlines()]
    return [(line[1], int(line[4])) for line in lines if line[1] != "stopped"]


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def difference(run: Path, other: Path) -> float:
    """The greatest between two runs' weights."""
    a, b = (load_file(folder / "model" / "model.safetensors") for folder in (run, other))
    assert a.keys() == b.keys()
    return max((a[name] - b[name]).abs().max().item() for name in a)


def losses(run: Path) -> list[float]:
    """The loss of each step that the run recorded."""
    return [json.loads(line)["loss"] for line in (run / PROGRESS).read_text().splitlines()]


def metrics(run: Path) -> dict:
    return read_checked(run / "evaluation" / "metrics.json", "")
