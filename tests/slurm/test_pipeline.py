"""The pipeline on two nodes, from simulated episodes to a report, with a training that is stopped and loses a node; and
a pipeline whose stage fails."""

import shutil
from pathlib import Path

import pytest
from helpers.slurm.whole_runs import (
    SECONDS,
    difference,
    in_one_process,
    ledger,
    lose_node,
    losses,
    metrics,
    wait_for_training,
    write_recipe,
)
from helpers.slurm.workplace import REPOSITORY

from vlm_agent.simulator.demonstrations import simulate

STOPS = 1
STEPS, ROWS_A_STEP = 4 + STOPS, 16
"""Steps long enough to be interrupted."""

SAME = 1e-5
"""Two processes sum the same gradients in another order than one."""

LEARNING = {"steps": 160, "schedule": "cosine", "optimizer": {"name": "adamw", "learning_rate": 1.5e-2}}
"""Until nearly all actions that it has seen are right."""

EQUAL_STEPS = 20
"""Steps whose losses are equal within `SAME`. AdamW takes steps along the last digits of sums, so a difference by
rounding grows tenfold in four steps: from 5e-8 after 15 steps to 4e-5 after 28 on a CPU without AVX-512."""

SAME_POINTS = 10
"""Points by which the scores of two such ends may differ, on any CPU."""

DONE = {name: {"COMPLETED"} for name in ("convert", "finish", "train", "evaluate", "report")}
DONE |= {"failed": {"CANCELLED"}}


@pytest.fixture
def simulated(workplace, monkeypatch):
    """Where `data` holds simulated episodes; the test is in that folder too."""
    simulate(workplace.folder / "data", 10, sizes=((128, 64),), workers=1)
    monkeypatch.chdir(workplace.folder)
    return workplace


def _submit(workplace, recipe, training=(), evaluation=()):
    """The numbers of the jobs that make `run_of_2`, by name."""
    return workplace.pipeline(
        *("--nodes", 2, "convert", "--input", "data", "--splits", "data/splits.json", "--output", "shards"),
        *("then", "train", "--config", recipe, "--output", "run_of_2", *training),
        *("then", "evaluate", "--controls", "none", *evaluation),
    )


def _end(workplace, jobs):
    """The states in which they end, by name."""
    return dict(zip(jobs, workplace.cluster.wait_for(*jobs.values(), seconds=SECONDS), strict=True))


def _logs(workplace, jobs):
    return {name: workplace.log(name, job) for name, job in jobs.items()}


def test_a_pipeline_on_two_nodes_reaches_its_report_after_a_stop_and_a_node_failure(simulated):
    recipes = [
        write_recipe(simulated.folder, f"run_of_{processes}", steps=STEPS, accumulation=ROWS_A_STEP // processes)
        for processes in (1, 2)
    ]
    jobs = _submit(simulated, recipes[1])
    train, run = jobs["train"], simulated.folder / "run_of_2"
    for start in range(STOPS):
        wait_for_training(simulated, run, train, start + 1)
        simulated.run("scancel", "--batch", "--signal=USR1", train)
    wait_for_training(simulated, run, train, STOPS + 1)
    lose_node(simulated, "node2", train)
    assert not (run / "run.json").exists()

    assert _end(simulated, jobs) == DONE, _logs(simulated, jobs)
    assert [event for event, _ in ledger(run)] == ["start", "again"] * STOPS + ["start", "start", "done"]
    saved = [step for event, step in ledger(run) if event == "again"]
    assert sorted({0, *saved, STEPS}) == [0, *saved, STEPS]

    alone = in_one_process(recipes[0])
    assert difference(run, alone) < SAME
    assert metrics(run) == metrics(alone)
    assert "<html" in (run / "evaluation" / "report.html").read_text()
    logs = run / "logs" / train
    assert {path.stem for path in logs.iterdir()} == {"job", "rank-0", "rank-1", "node-0", "node-1"}
    for rank in range(2):
        starts = [line for line in (logs / f"rank-{rank}.log").read_text().splitlines() if line.startswith("===")]
        assert [line.split()[-1] for line in starts] == [f"node{rank + 1}"] * (STOPS + 2)


@pytest.mark.slow
def test_zero_3_on_two_nodes_reaches_the_report_of_one_process(simulated):
    """ZeRO-2 takes the same way to two nodes; tests/training/test_deepspeed.py compares its weights on two ranks."""
    shutil.copytree(REPOSITORY / "deepspeed_configs", simulated.folder / "deepspeed_configs")
    recipes = [write_recipe(simulated.folder, f"run_of_{n}", **LEARNING, accumulation=4 // n) for n in (1, 2)]
    seen = ("--split", "train")
    jobs = _submit(simulated, recipes[1], ["--training.deepspeed", "deepspeed_configs/cpu_zero3.json"], seen)
    assert _end(simulated, jobs) == DONE, _logs(simulated, jobs)

    alone, run = in_one_process(recipes[0], *seen), simulated.folder / "run_of_2"
    assert losses(run)[:EQUAL_STEPS] == pytest.approx(losses(alone)[:EQUAL_STEPS], rel=SAME)
    assert _partial_match(alone) > 50
    assert _partial_match(run) == pytest.approx(_partial_match(alone), abs=SAME_POINTS)
    assert "<html" in (run / "evaluation" / "report.html").read_text()


def _partial_match(run: Path) -> float:
    return metrics(run)["trained"]["official"]["overall"]["partial_match"]


def test_a_failed_stage_stops_the_chain_with_a_message(workplace):
    (workplace.folder / "recipe.yaml").touch()
    workplace.install("vlm-agent", 'case "$*" in *--finish*) echo what is wrong with the shards; exit 1; esac\n')
    jobs = workplace.pipeline(
        *("convert", "--input", "data", "--output", "shards"),
        *("then", "train", "--config", "recipe.yaml", "--output", "run", "then", "evaluate"),
    )
    assert _end(workplace, jobs) == {
        "convert": {"COMPLETED"},
        "finish": {"FAILED"},
        "train": {"CANCELLED"},
        "evaluate": {"CANCELLED"},
        "report": {"CANCELLED"},
        "failed": {"COMPLETED"},
    }
    output = workplace.log("failed", jobs["failed"])
    assert f"convert (job {jobs['convert']}): done" in output
    assert f"finish (job {jobs['finish']}): 1 x FAILED (NonZeroExitCode, status 1:0)" in output
    assert "what is wrong with the shards" in output
    assert not (workplace.folder / "run" / "slurm.tsv").exists()
