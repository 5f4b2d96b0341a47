"""`vlm-agent status` in every state of a run folder."""

import json
import os
import signal
import socket
import time
from datetime import datetime, timedelta

import pytest
from helpers.training import forks

from vlm_agent.cli import FAILED, OK, main
from vlm_agent.errors import UserError
from vlm_agent.training.journal import PROGRESS, append_progress
from vlm_agent.training.run_folder.layout import run_lock
from vlm_agent.training.run_folder.status import StatusError, read_status

SPEED = {"tokens_per_second": 1234.4, "actions_per_second": 5.6, "data_wait": 0.031, "memory_gib": 1.04}
BEGIN = datetime.fromisoformat("2026-01-01T12:00:00+00:00")


class Folder:
    """A run folder written by the test, minute by minute."""

    def __init__(self, path):
        self.path = path
        (path / "checkpoints").mkdir(parents=True)

    def event(self, minute, name, done, note="", job="7", restarts=0):
        time = (BEGIN + timedelta(minutes=minute)).isoformat()
        with (self.path / "slurm.tsv").open("a") as file:
            file.write("\t".join((time, name, job, str(restarts), str(done), note)) + "\n")

    def checkpoint(self, minute, step, whole=True):
        folder = self.path / "checkpoints" / f"checkpoint-{step}"
        self._write(minute, folder / "optimizer.pt", "")
        if whole:
            self._write(minute, folder / "whole.json", "{}")

    def progress(self, minute, step, steps=100, eta_seconds=60.0, **figures):
        time = (BEGIN + timedelta(minutes=minute)).isoformat()
        line = {"step": step, "steps": steps, "time": time, "seconds": 1.0, "eta_seconds": eta_seconds}
        append_progress(self.path / PROGRESS, line | figures)
        os.utime(self.path / PROGRESS, ((BEGIN + timedelta(minutes=minute)).timestamp(),) * 2)

    def log(self, minute, name, text, job="7"):
        self._write(minute, self.path / "logs" / job / name, text)

    def _write(self, minute, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        time = (BEGIN + timedelta(minutes=minute)).timestamp()
        os.utime(path, (time, time))


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "run")


def test_without_progress_the_newest_whole_checkpoint_has_the_step(folder):
    folder.checkpoint(10, 20)
    folder.checkpoint(20, 40)
    folder.checkpoint(25, 50, whole=False)
    status = read_status(folder.path)
    assert (status.step, status.steps, status.loss, status.eta) == (40, None, None, None)
    assert status.checkpoint.time == BEGIN + timedelta(minutes=20)


def test_progress_is_further_than_the_newest_checkpoint(folder):
    folder.checkpoint(10, 20)
    folder.progress(11, 21, loss=0.5, eta_seconds=100.0, **SPEED)
    folder.progress(12, 22, loss=0.25, eta_seconds=90.5, **SPEED)
    folder.progress(12, 22, eval_loss=0.75, eval_accuracy=0.5)
    status = read_status(folder.path)
    assert (status.step, status.steps, status.loss) == (22, 100, 0.25)
    assert status.eta == timedelta(seconds=90.5)
    assert (status.figures["tokens_per_second"], status.validation["eval_accuracy"]) == (1234.4, 0.5)
    assert status.last_write >= BEGIN + timedelta(minutes=12)


def test_a_checkpoint_that_is_removed_while_it_is_listed_is_no_error(folder, monkeypatch):
    folder.checkpoint(10, 20)
    folder.checkpoint(20, 40)
    old, scandir = folder.path / "checkpoints" / "checkpoint-20", os.scandir

    def listed(path="."):
        if path == old or path == str(old):
            old.rename(folder.path / "removed")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", listed)
    assert read_status(folder.path).checkpoint.step == 40
    assert not old.exists()


def test_no_figure_comes_from_a_log(folder):
    folder.checkpoint(10, 20)
    folder.log(11, "rank-0.log", "=== 12:00  start 1 on node1\nstep 22/100  loss 0.25  7 tokens/s\n")
    status = read_status(folder.path)
    assert (status.step, status.loss, status.figures) == (20, None, {})
    assert status.last_write >= BEGIN + timedelta(minutes=11)


def test_an_incomplete_last_line_of_progress_is_skipped(folder):
    folder.progress(11, 21, loss=0.5, **SPEED)
    with (folder.path / PROGRESS).open("a") as file:
        file.write('{"step": 22, "steps": 100, "lo')
    assert (read_status(folder.path).step, read_status(folder.path).loss) == (21, 0.5)


def test_the_eta_of_an_earlier_start_is_not_shown(folder):
    folder.progress(11, 21, loss=0.5, **SPEED)
    folder.event(600, "start", 20, "node1", restarts=1)
    assert read_status(folder.path).eta is None
    folder.progress(601, 21, loss=0.5, eta_seconds=7.0, **SPEED)
    assert read_status(folder.path).eta == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("event", "note", "state"),
    [
        ("start", "node[1-2]", "started by job 7 on node[1-2]"),
        ("again", "status 75", "stopped and saved; job 7 waits for its next turn"),
        ("stopped", "no progress twice in a row", "stopped in job 7: no progress twice in a row"),
        ("failed", "status 1", "failed in job 7: status 1"),
    ],
)
def test_the_last_event_is_the_state(folder, event, note, state):
    folder.event(0, "start", 0, "node9", job="6")
    folder.event(1, event, 0, note)
    assert read_status(folder.path).state == state


def test_a_run_that_trained_outside_slurm_after_its_job_failed_has_not_failed(folder):
    lock = folder.path / "lock"
    lock.write_text("process 5 on host")
    folder.event(0, "failed", 0, "status 1")
    (folder.path / "stopped").touch()
    os.utime(lock, (0, (BEGIN + timedelta(seconds=30)).timestamp()))
    assert read_status(folder.path).state == "failed in job 7: status 1"
    os.utime(lock, (0, (BEGIN + timedelta(minutes=5)).timestamp()))
    assert read_status(folder.path).state == "stopped and saved; run the same command again to resume"


def test_a_run_without_slurm_has_a_state_too(folder):
    assert read_status(folder.path).state == "not running"
    (folder.path / "stopped").touch()
    assert read_status(folder.path).state == "stopped and saved; run the same command again to resume"


_HOLDER = """
import sys, time
from pathlib import Path
from vlm_agent.training.run_folder.layout import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_running_killed_and_interrupted_differ_by_the_lock(folder, tmp_path):
    (tmp_path / "holder.py").write_text(_HOLDER)
    printed = tmp_path / "printed"

    def start():
        printed.write_text("")
        process = forks.start(tmp_path / "holder.py", folder.path, output=printed)
        while printed.read_text() != "held\n":
            assert process.poll() is None
            time.sleep(0.02)
        return process

    process = start()
    owner = f"process {process.pid} on {socket.gethostname()}, since "
    assert read_status(folder.path).state.startswith(f"running: {owner}")
    folder.event(0, "start", 0, "node1")
    assert read_status(folder.path).state.endswith("; job 7 on node1")
    (folder.path / "slurm.tsv").unlink()
    process.kill()
    process.wait()
    assert read_status(folder.path).state.startswith(f"killed: {owner}")
    assert read_status(folder.path).state.endswith("; run the same command again to resume")
    process = start()
    os.kill(process.pid, signal.SIGINT)
    process.wait()
    assert read_status(folder.path).state == "interrupted; run the same command again to resume"


def test_a_lock_of_another_machine_may_not_be_seen_here(folder):
    (folder.path / "lock").write_text("process 7 on elsewhere, since 2026-01-01 12:00:00 UTC")
    assert "(or runs on its machine, and the lock is not seen here)" in read_status(folder.path).state


def test_asking_for_the_status_leaves_the_lock_free(folder):
    (folder.path / "lock").touch()
    read_status(folder.path)
    with run_lock(folder.path):
        pass


def test_a_merged_checkpoint_names_its_run(tmp_path):
    (tmp_path / "recipe.yaml").touch()
    (tmp_path / "merge.json").write_text('{"run": "runs/a"}')
    assert read_status(tmp_path).state == "merged from runs/a"


def test_a_finished_run_has_no_eta_and_no_error(folder):
    folder.event(0, "start", 0, "node1")
    folder.checkpoint(10, 20)
    folder.log(11, "rank-0.log", "ValueError: of a turn before")
    (folder.path / "run.json").write_text(json.dumps({"figures": {"steps": 100, "last_losses": {"loss": 0.125}}}))
    status = read_status(folder.path)
    assert (status.state, status.step, status.steps, status.eta, status.error) == ("finished", 100, 100, None, None)
    assert status.loss == 0.125
    folder.progress(12, 99, loss=0.0625, **SPEED)
    assert (read_status(folder.path).step, read_status(folder.path).loss) == (100, 0.0625)


def test_the_error_shown_is_that_of_the_rank_whose_log_ended_first(folder):
    folder.log(3, "rank-0.log", "Traceback\ntorch.distributed.DistBackendError: connection closed by peer\n")
    folder.log(
        2, "rank-5.log", "Traceback\nRuntimeError: first\nTraceback\ntorch.OutOfMemoryError: CUDA out of memory\n"
    )
    folder.log(4, "node-0.log", "exitcode  : 1 (pid: 3)\n")
    assert read_status(folder.path).error == "torch.OutOfMemoryError: CUDA out of memory (logs/7/rank-5.log)"


def test_without_an_error_of_a_rank_that_of_slurm_or_torchrun_is_shown(folder):
    folder.log(1, "rank-0.log", "step 1/2  loss 1.0\n")
    folder.log(2, "job.log", "srun: error: node2: task 1: Out Of Memory\n")
    assert read_status(folder.path).error == "srun: error: node2: task 1: Out Of Memory (logs/7/job.log)"
    folder.log(2, "node-1.log", "  exitcode  : -9 (pid: 12)  (SIGKILL)\n")
    assert read_status(folder.path).error == "exitcode  : -9 (pid: 12)  (SIGKILL) (logs/7/node-1.log)"


def test_an_error_before_the_last_start_is_not_shown(folder):
    folder.log(
        1, "rank-0.log", "=== 12:00  start 1 on node1\nOSError: gone\n=== 13:00  start 2 on node1\nstep 3/9  loss 1.5\n"
    )
    assert read_status(folder.path).error is None


def test_an_incomplete_line_of_the_ledger_is_skipped(folder):
    folder.event(0, "start", 0, "node1")
    with (folder.path / "slurm.tsv").open("a") as file:
        file.write("2026-01-01T12:0")
    assert len(read_status(folder.path).starts) == 1


@pytest.mark.parametrize(
    "line",
    [
        "x\ty\tz\t0\tb\tc",
        "2026-01-01T12:02026-01-01T12:00:00+00:00\tstart\t7\t0\t0\tnode1",  # appended to an incomplete line
        "2026-01-01T12:00:00\tstart\t7\t0\t0\tno time zone",
        "2026-01-01T12:00:00+00:00\tstart\t7\t0\tmany\tnode1",
        "\udcff\udcfe",
    ],
)
def test_a_malformed_line_of_the_ledger_is_skipped(folder, line):
    folder.event(0, "start", 0, "node1")
    with (folder.path / "slurm.tsv").open("ab") as file:
        file.write(f"{line}\n".encode(errors="surrogateescape"))
    folder.progress(11, 21, loss=0.5, **SPEED)
    assert [event.note for event in read_status(folder.path).starts] == ["node1"]


def test_a_finished_run_needs_neither_progress_nor_checkpoints(folder):
    folder.checkpoint(10, 20)
    (folder.path / "run.json").write_text(json.dumps({"figures": {"steps": 100, "last_losses": {"loss": 0.125}}}))
    status = read_status(folder.path)
    assert (status.state, status.step, status.loss, status.checkpoint.step) == ("finished", 100, 0.125, 20)


@pytest.mark.parametrize(
    "damage",
    [
        {"loss": "x"},
        {"steps": None},
        {"time": "2026-01-01T12:00:00"},
        {"eta_seconds": float("inf")},
        {"eta_seconds": 1e300},
        {"tokens_per_second": []},
    ],
)
def test_a_line_of_progress_with_other_content_is_an_error_that_names_file_and_key(folder, damage, capsys):
    folder.event(0, "start", 0, "node1")
    folder.progress(11, 21, **{"loss": 0.5, **SPEED} | damage)
    assert main(["status", str(folder.path)]) == FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{folder.path / PROGRESS} is damaged ({next(iter(damage))}: " in line


def test_a_damaged_validation_in_progress_is_an_error_too(folder):
    folder.progress(11, 21, eval_loss=0.5)
    with pytest.raises(UserError, match="eval_accuracy"):
        read_status(folder.path)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(StatusError, match="is no run folder"):
        read_status(tmp_path)
    assert main(["status", str(tmp_path / "nowhere")]) == FAILED


def test_the_command_prints_the_status(folder, capsys):
    folder.event(0, "start", 0, "node1")
    folder.checkpoint(10, 20)
    folder.event(11, "again", 20)
    folder.event(20, "start", 20, "node[1-2]", restarts=1)
    folder.checkpoint(30, 40)
    folder.progress(31, 41, loss=0.5, eta_seconds=1800.0, **SPEED)
    folder.progress(31, 40, eval_loss=0.75, eval_accuracy=0.5)
    folder.log(31, "rank-0.log", "RuntimeError: [bold]not markup[/bold]\n")
    assert main(["status", str(folder.path)]) == OK
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert printed[0] == f"{folder.path}: started by job 7 on node[1-2]"
    assert "step        41 of 100 (41%), loss 0.500" in printed
    assert "ETA         0:30:00 from step 41, at the average speed since the last start" in printed
    assert "speed       1,234 tokens/s, 5.6 actions/s, loader wait 3%, 1.0 GiB" in printed
    assert "validation  step 40: loss 0.750, 50.0% of actions exact" in printed
    assert any(line.startswith("started") and line.endswith(", 1 restart(s)") for line in printed)
    assert "last error  RuntimeError: [bold]not markup[/bold] (logs/7/rank-0.log)" in printed
