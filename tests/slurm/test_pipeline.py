"""The whole road on two nodes, from simulated episodes to a report, with a training that is told to stop and loses a
node; and a road that ends half way."""

import json
from pathlib import Path

import pytest
import tiny
import yaml
from cluster import soon
from safetensors.torch import load_file

from vlm_agent.cli import main
from vlm_agent.datasets.simulated_phone import simulate

SECONDS = 300
STOPS = 1
STEPS, BATCHES_A_STEP = 4 + STOPS, 16
SAME = 1e-5
"""Two processes sum the same gradients in another order than one."""

STAGES = ("convert", "finish", "train", "evaluate", "report")


def _recipe(folder: Path, processes: int) -> Path:
    """Steps long enough to be interrupted. The element loss weighs every batch alike, however many elements it has, so
    that other batches a process would be another loss."""
    recipe = tiny.recipe("shards", f"run_of_{processes}")
    recipe["model"]["element_loss"] = 0
    recipe["training"] |= {"steps": STEPS, "batch_size": 1, "accumulation": BATCHES_A_STEP // processes}
    path = folder / f"for_{processes}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


@pytest.fixture
def simulated(workplace):
    """Where `data` holds simulated episodes."""
    simulate(workplace.folder / "data", 10, sizes=((128, 64),), workers=1)
    return workplace


def test_from_episodes_to_a_report_on_two_nodes_with_a_stop_and_a_dead_node_in_between(simulated, monkeypatch):
    recipe = _recipe(simulated.folder, processes=2)
    jobs = simulated.pipeline(
        *("--nodes", 2, "convert", "--input", "data", "--splits", "data/splits.json", "--output", "shards"),
        *("then", "train", "--config", recipe, "--output", "run_of_2", "then", "evaluate", "--no-controls"),
    )
    train, run = jobs["train"], simulated.folder / "run_of_2"
    for start in range(STOPS):
        _wait_for_training(simulated, run, train, start + 1)
        simulated.run("scancel", "--batch", "--signal=USR1", train)
    _wait_for_training(simulated, run, train, STOPS + 1)
    simulated.run("scontrol", "update", "nodename=node2", "state=down", "reason=test")
    soon(lambda: simulated.cluster.states(train) == {"PENDING"}, SECONDS, lambda: _said(simulated, jobs))
    assert not (run / "run.json").exists()
    simulated.run("scontrol", "update", "nodename=node2", "state=resume")

    states = dict(zip(jobs, simulated.cluster.wait_for(*jobs.values(), seconds=SECONDS), strict=True))
    assert states == {name: {"COMPLETED"} for name in STAGES} | {"failed": {"CANCELLED"}}, _said(simulated, jobs)
    lines = [line.split("\t") for line in (run / "slurm.tsv").read_text().splitlines()]
    events = [line[1] for line in lines if line[1] != "stopped"]
    assert events == ["start", "again"] * STOPS + ["start", "start", "done"]
    saved = [int(line[4]) for line in lines if line[1] == "again"]
    assert sorted({0, *saved, STEPS}) == [0, *saved, STEPS]

    monkeypatch.chdir(simulated.folder)
    alone = simulated.folder / "run_of_1"
    assert main(["train", "--config", str(_recipe(simulated.folder, processes=1))]) == 0
    words = ["--checkpoint", str(alone), "--shards", "shards", "--output", str(alone / "evaluation"), "--no-controls"]
    assert main(["evaluate", *words]) == 0
    assert _difference(run, alone) < SAME
    assert _metrics(run) == _metrics(alone)
    assert "<html" in (run / "evaluation" / "report.html").read_text()
    logs = run / "logs" / train
    assert {path.stem for path in logs.iterdir()} == {"job", "rank-0", "rank-1", "node-0", "node-1"}
    for rank in range(2):
        starts = [line for line in (logs / f"rank-{rank}.log").read_text().splitlines() if line.startswith("===")]
        assert [line.split()[-1] for line in starts] == [f"node{rank + 1}"] * (STOPS + 2)


def _wait_for_training(workplace, run, job, start):
    """For a start, counted from 1: until rank 0 has described the model, which it does just before the first step."""
    log = run / "logs" / job / "rank-0.log"
    soon(
        lambda: log.exists() and "trained" in log.read_text().partition(f"start {start} on")[2],
        SECONDS,
        lambda: workplace.said("train", job) + workplace.run("squeue", "--long"),
    )


def _said(workplace, jobs):
    return {name: workplace.said(name, job) for name, job in jobs.items()}


def _difference(run, other):
    """The greatest between two runs' weights."""
    a, b = (load_file(folder / "model" / "model.safetensors") for folder in (run, other))
    assert a.keys() == b.keys()
    return max((a[name] - b[name]).abs().max().item() for name in a)


def _metrics(run):
    return json.loads((run / "evaluation" / "metrics.json").read_text())


def test_a_stage_that_fails_stops_the_chain_and_says_so(workplace):
    (workplace.folder / "recipe.yaml").touch()
    workplace.install("vlm-agent", 'case "$*" in *--finish*) echo what is wrong with the shards; exit 1; esac\n')
    jobs = workplace.pipeline(
        *("convert", "--input", "data", "--output", "shards"),
        *("then", "train", "--config", "recipe.yaml", "--output", "run", "then", "evaluate"),
    )
    states = dict(zip(jobs, workplace.cluster.wait_for(*jobs.values(), seconds=SECONDS), strict=True))
    assert states == {
        "convert": {"COMPLETED"},
        "finish": {"FAILED"},
        "train": {"CANCELLED"},
        "evaluate": {"CANCELLED"},
        "report": {"CANCELLED"},
        "failed": {"COMPLETED"},
    }
    said = workplace.said("failed", jobs["failed"])
    assert f"convert (job {jobs['convert']}): done" in said
    assert f"finish (job {jobs['finish']}): 1 x FAILED (NonZeroExitCode, status 1:0)" in said
    assert "what is wrong with the shards" in said
    assert not (workplace.folder / "run" / "slurm.tsv").exists()
