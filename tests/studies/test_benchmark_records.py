"""Figures of finished runs outlive the runs' folders: studies/ablation/records.py."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu import record
from studies.ablation.records import Records, pruned
from studies.ablation.runs import ABOUT, Run, command

METRICS = {"agent": {"official": {"overall": {"partial_match": 40.0, "tap": 3.0}}, "kinds": {"gold": {"tap": 60.0}}}}
KEPT = (("official", "overall", "partial_match"), ("kinds",), ("strict", "overall", "partial_match"))


@pytest.fixture
def run(tmp_path) -> Run:
    """A run whose recipe does not exist: whatever trains it fails."""
    run = Run(
        "full", 0, tmp_path / "runs/full_0", Path("none.yaml"), tmp_path, limit=5, records=Records(tmp_path / "r")
    )
    return replace(run, kept=KEPT, derived={"floor": lambda _: {"above 0": True}})


def test_the_figures_at_the_named_paths_are_kept():
    assert pruned(METRICS["agent"], KEPT) == {
        "official": {"overall": {"partial_match": 40.0}},
        "kinds": {"gold": {"tap": 60.0}},
    }


def test_a_recorded_run_is_not_trained_again_and_has_its_figures(run):
    run.records.add(run.key, {"metrics": METRICS, "seconds": {"training": 7.0}, "floor": {"above 0": False}})
    run.complete()
    assert run.is_done
    assert not run.has_files
    assert (run.metrics, run.seconds) == (METRICS, {"training": 7.0})
    assert run.figure("floor") == {"above 0": False}


def test_a_figure_that_is_not_recorded_is_computed(run):
    assert run.figure("floor") == {"above 0": True}


@pytest.mark.parametrize("change", [{"limit": 6}, {"seed": 1, "folder": Path("runs/full_1")}])
def test_a_run_of_other_episodes_or_another_seed_is_another_run(run, change):
    run.records.add(run.key, {"metrics": METRICS})
    assert not replace(run, **change).is_done


def test_lines_add_to_each_other_and_a_cut_one_is_ignored(run):
    run.records.add(run.key, {"metrics": METRICS})
    with run.records.path.open("a") as file:
        file.write('{"run": "another", "metrics": {}}\n{"run": "' + run.key)
    assert run.is_done
    with run.records.path.open("a") as file:
        file.write("\n")
    run.records.add(run.key, {"online, 2 tasks": []})
    assert run.online(2) == []
    assert run.metrics == METRICS


def test_a_finished_run_is_recorded(run, monkeypatch):
    def train_and_evaluate(run: Run) -> None:
        run.evaluation.mkdir(parents=True)
        (run.evaluation / "metrics.json").write_text(json.dumps(METRICS))
        (run.folder / ABOUT).write_text('{"commit": "that of the evaluation"}')

    monkeypatch.setattr(Run, "complete_files", train_and_evaluate)
    run.complete()
    known = run.records.find(run.key)
    assert known["metrics"] == {"agent": pruned(METRICS["agent"], KEPT)}
    assert known["floor"] == {"above 0": True}
    assert known["commit"] == "that of the evaluation"


def test_records_of_a_study_are_no_change_of_the_code(tmp_path, monkeypatch):
    (tmp_path / "studies/a").mkdir(parents=True)
    code, records = tmp_path / "record.py", tmp_path / "studies/a/records.jsonl"
    for file in (code, records):
        file.touch()
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "one")):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(record, "__file__", str(code))
    clean = record.commit()
    records.write_text("{}\n")
    assert record.commit() == clean and not clean.endswith("-dirty")
    code.write_text("1\n")
    assert record.commit() == f"{clean}-dirty"


def test_a_study_that_is_terminated_ends_the_command_under_way(tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid; sleep 1; kill $PPID; exec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(KeyboardInterrupt) as stopped:
        command("train")
    assert stopped.value.args == (signal.SIGTERM,)
    _, status = os.waitpid(int((tmp_path / "pid").read_text()), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
