"""A comparison as a job per stage, on two nodes; and in one process, killed in its stages."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.evaluation import comparisons
from helpers.evaluation.comparisons import answers, ends, table
from helpers.slurm.cluster import soon
from helpers.slurm.whole_runs import lose_node, weights
from helpers.slurm.workplace import Workplace

from vlm_agent.errors import Stopped

SECONDS = 120
SECONDS_WITH_TRAINING = 2400
"""For a machine that does other work, too."""

KILLED_IN = ("simulate", "convert", "train", "evaluate", "evaluate --online")

STRUCK = "offline-asks-0"
"""The stage that loses its node, with the model that is served beside it."""

LISTED = """
simulate	0	done	-	out/data/aitw
convert	0	open	simulate	out/data/shards
train-bad-0	2	open	convert	out/runs/bad_0
offline-bad-0	1	open	simulate,convert,train-bad-0	out/offline/bad_0
train-good-0	2	open	convert	out/runs/good_0	1.5
offline-good-0	1	open	simulate,convert,train-good-0	out/offline/good_0
"""
PROGRAM = f"""
case "$*" in
    *--list-stages*) cat <<'END'
{LISTED.strip()}
END
    ;;
    *"--stage train-bad-0"*) echo what is wrong; exit 7 ;;
    *"--stage train-good-0"*)
        if [ -n "${{SLURM_RESTART_COUNT:-}}" ]; then exit 0; fi
        mkdir -p out/runs/good_0/checkpoints/checkpoint-3
        touch out/runs/good_0/checkpoints/checkpoint-3/whole.json
        exit 75 ;;
    *--report*) echo bad, seed 0: train-bad-0 failed; exit 1 ;;
esac
"""
COMPARE = ("compare", "comparison.yaml", "--output", "out", "--seeds", "0")


def _option(words: list[str], name: str) -> str | None:
    return next((word.partition("=")[2] for word in words if word.startswith(f"{name}=")), None)


def _submissions(place: Workplace, *words: object) -> dict[str, list[str]]:
    """By job name, the words of each command that --dry-run prints."""
    lines = place.pipeline_alone("--dry-run", *words).stdout.splitlines()
    return {_option(words, "--job-name"): words for words in map(shlex.split, lines)}


def test_a_dry_run_shows_a_job_for_each_stage_that_is_not_done(tmp_path):
    place = Workplace(tmp_path)
    place.set(GPUS_PER_NODE=8)
    place.install("vlm-agent", PROGRAM)
    found = _submissions(place, *COMPARE)
    train = "ID_OF_TRAIN-GOOD-0"
    assert {name: _option(words, "--dependency") for name, words in found.items()} == {
        "convert": None,
        "train-bad-0": "afterok:ID_OF_CONVERT",
        "offline-bad-0": "afterok:ID_OF_CONVERT:ID_OF_TRAIN-BAD-0",
        "train-good-0": "afterok:ID_OF_CONVERT",
        "offline-good-0": f"afterok:ID_OF_CONVERT:{train}",
        "report": f"afterany:ID_OF_CONVERT:ID_OF_TRAIN-BAD-0:ID_OF_OFFLINE-BAD-0:{train}:ID_OF_OFFLINE-GOOD-0",
    }
    assert {name: _option(words, "--gres") for name, words in found.items()} == {
        "convert": None,
        **dict.fromkeys(("train-bad-0", "train-good-0"), "gpu:2"),
        **dict.fromkeys(("offline-bad-0", "offline-good-0"), "gpu:1"),
        "report": None,
    }
    words = found["train-good-0"]
    assert words[words.index("slurm/compare.sbatch") + 1 :] == [
        "out/runs/good_0",
        *COMPARE[1:],
        "--stage",
        words[2][11:],
        *("#", "1.5", "hours"),
    ]


def test_a_training_on_more_gpus_than_a_node_has_is_refused(tmp_path):
    place = Workplace(tmp_path)
    place.set(GPUS_PER_NODE=4)
    done = place.pipeline_alone("--dry-run", *COMPARE, "--gpus", "8")
    assert "--gpus is 8, and a node has 4 (GPUS_PER_NODE of slurm/site.sh)" in done.stderr
    assert not done.stdout


def test_when_all_stages_are_done_only_the_report_is_submitted(tmp_path):
    place = Workplace(tmp_path)
    place.install("vlm-agent", PROGRAM.replace("open", "done"))
    assert {name: _option(words, "--dependency") for name, words in _submissions(place, *COMPARE).items()} == {
        "report": None
    }


def test_a_comparison_needs_a_folder_and_stages(tmp_path):
    place = Workplace(tmp_path)
    assert "compare needs --output" in place.pipeline_alone("--dry-run", "compare", "comparison.yaml").stderr
    place.install("vlm-agent", "echo what is wrong with the file >&2; exit 1")
    done = place.pipeline_alone("--dry-run", *COMPARE)
    assert "what is wrong with the file\nslurm/pipeline.sh: nothing is submitted; see above" in done.stderr
    assert not done.stdout


def test_a_stage_that_fails_cancels_those_that_need_it_and_a_stopped_one_is_requeued(workplace):
    workplace.install("vlm-agent", PROGRAM)
    jobs = workplace.pipeline(*COMPARE)
    states = dict(zip(jobs, workplace.cluster.wait_for(*jobs.values(), seconds=SECONDS), strict=True))
    assert states == {
        "convert": {"COMPLETED"},
        "train-bad-0": {"FAILED"},
        "offline-bad-0": {"CANCELLED"},
        "train-good-0": {"COMPLETED"},
        "offline-good-0": {"COMPLETED"},
        "report": {"FAILED"},
    }
    assert "what is wrong" in workplace.log("train-bad-0", jobs["train-bad-0"])
    assert "bad, seed 0: train-bad-0 failed" in workplace.log("report", jobs["report"])
    assert _ledger(workplace, "train-good-0", jobs) == [("start", "0"), ("again", "3"), ("start", "3"), ("done", "3")]


def _ledger(workplace: Workplace, name: str, jobs: dict[str, str]) -> list[tuple[str, str]]:
    """(event, progress) of each line but `stopped`, which a job writes only if a dying node lets it."""
    path = workplace.folder / "slurm" / "logs" / f"{name}-{jobs[name]}.tsv"
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    return [(line[1], line[4]) for line in lines if line[1] != "stopped"]


def _until_logged(workplace: Workplace, name: str, jobs: dict[str, str], words: str) -> None:
    path = workplace.folder / "slurm" / "logs" / f"{name}-{jobs[name]}.log"
    soon(lambda: path.exists() and words in path.read_text(), SECONDS_WITH_TRAINING, lambda: _queue(workplace, jobs))


def _queue(workplace: Workplace, jobs: dict[str, str]) -> str:
    return "\n".join([workplace.run("squeue", "--long"), *(workplace.log(name, job) for name, job in jobs.items())])


def _started(comparison: Path, output: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "vlm_agent.cli", "compare", str(comparison), "--output", str(output)]
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=environment, start_new_session=True, **pipes)


def _kill_in(stage: str, process: subprocess.Popen) -> None:
    """Kills the whole session soon after the start of the stage."""
    for line in process.stdout:
        if f"$ vlm-agent {stage}" in line:
            break
    try:
        process.wait(4.0)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
def test_jobs_with_a_stop_and_a_dead_node_have_the_table_of_one_process_killed_in_every_stage(workplace, tmp_path):
    """Neither is undisturbed: what a resumed stage changed would have to be the same in both. Weights, scores and
    answers of resumed stages are compared with those of undisturbed ones in the tests of each command."""
    agents = comparisons.trained(tmp_path)
    one = agents["one"] | {"overrides": {"training.steps": 40}}
    broken = agents["one"] | {"name": "Broken", "overrides": {"data.max_tokens": 3}}
    agents = {"one": one, **comparisons.prompted(), "broken": broken}
    comparison = comparisons.write(tmp_path / "comparison.yaml", agents, served=comparisons.served())
    words = ("compare", "comparison.yaml", "--output", "out")
    workplace.set(CPUS_PER_GPU=4)  # half of a node, so that both nodes have work
    jobs = workplace.pipeline(*words)
    assert len(jobs) == 15

    _until_logged(workplace, "train-one-0", jobs, "loss")
    workplace.run("scancel", "--batch", "--signal=USR1", jobs["train-one-0"])
    _until_logged(workplace, STRUCK, jobs, "$ vlm-agent evaluate")
    lose_node(workplace, workplace.cluster.job(jobs[STRUCK])["BatchHost"], jobs[STRUCK], STRUCK)

    ended = workplace.cluster.wait_for(*jobs.values(), seconds=SECONDS_WITH_TRAINING)
    states = dict(zip(jobs, ended, strict=True))
    expected = {name: {"COMPLETED"} for name in jobs} | {
        "train-broken-0": {"FAILED"},
        "offline-broken-0": {"CANCELLED"},
        "online-broken-0": {"CANCELLED"},
        "report": {"FAILED"},
    }
    assert states == expected, _queue(workplace, jobs)
    events = {name: [event for event, _ in _ledger(workplace, name, jobs)] for name in ("train-one-0", STRUCK)}
    assert events["train-one-0"][:3] == ["start", "again", "start"]
    assert events[STRUCK] == ["start", "start", "done"]
    assert "broken, seed 0: train-broken-0 failed with status 1" in workplace.log("report", jobs["report"])

    statuses = ends(workplace.folder / "out")
    assert statuses["train-one-0"][0] == Stopped.STATUS
    assert {name: found.count(0) for name, found in statuses.items()} == {
        name: int("broken" not in name) for name in jobs if name in statuses
    }
    left = _submissions(workplace, *words)
    assert list(left) == ["train-broken-0", "offline-broken-0", "online-broken-0", "report"]

    killed = tmp_path / "killed"
    for stage in KILLED_IN:
        _kill_in(stage, _started(comparison, killed))
    process = _started(comparison, killed)
    text, _ = process.communicate(timeout=900)
    assert process.returncode == 1, text
    assert "broken, seed 0: train-broken-0 failed with status 1" in text
    content = json.loads((killed / "comparison.json").read_text())
    assert any(stage["killed"] for stage in content["stages"].values())
    compared = {key: bool(about["rows"]) for key, about in content["agents"].items()}
    assert compared == {"one": True, "asks": True, "broken": False}

    assert table(workplace.folder / "out") == table(killed)
    assert answers(workplace.folder / "out") == answers(killed)
    for run in ("one_0", "served_0"):
        assert weights(workplace.folder / "out/runs" / run) == weights(killed / "runs" / run)
    page = (killed / "comparison.html").read_text()
    assert "<script>" not in page
    assert "&lt;b&gt;One&lt;/b&gt;" in page
