"""What a run folder tells of its run, in every state that it can be in."""

import json
import os
from datetime import datetime, timedelta

import pytest

from vlm_agent.cli import FAILED, OK, main
from vlm_agent.training.status import StatusError, read_status

BEGIN = datetime.fromisoformat("2026-01-01T12:00:00+00:00")


class Folder:
    """A run folder that is made up, minute by minute."""

    def __init__(self, path):
        self.path = path
        (path / "checkpoints").mkdir(parents=True)

    def event(self, minute, name, done, note="", job="7", restarts=0):
        time = (BEGIN + timedelta(minutes=minute)).isoformat()
        with (self.path / "slurm.tsv").open("a") as file:
            file.write("\t".join((time, name, job, str(restarts), str(done), note)) + "\n")

    def checkpoint(self, minute, step, steps=100, whole=True):
        folder = self.path / "checkpoints" / f"checkpoint-{step}"
        log = [{"loss": 3.0, "step": 1}, {"loss": 1 / step, "step": step}, {"eval_loss": 9.0, "step": step}]
        self._write(minute, folder / "trainer_state.json", json.dumps({"max_steps": steps, "log_history": log}))
        if whole:
            self._write(minute, folder / "whole.json", "{}")

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


def test_the_newest_whole_checkpoint_tells_how_far_a_run_is(folder):
    folder.checkpoint(10, 20)
    folder.checkpoint(20, 40)
    folder.checkpoint(25, 50, whole=False)
    status = read_status(folder.path)
    assert (status.step, status.steps, status.loss) == (40, 100, 1 / 40)
    assert status.checkpoint.time == BEGIN + timedelta(minutes=20)
    assert status.left == timedelta(minutes=30)


def test_what_is_left_is_reckoned_from_the_last_start_and_not_with_the_time_in_the_queue(folder):
    folder.event(0, "start", 0, "node1")
    folder.checkpoint(10, 20)
    folder.event(12, "again", 20)
    folder.event(600, "start", 20, "node1", restarts=1)
    folder.checkpoint(604, 40)
    assert read_status(folder.path).left == timedelta(minutes=12)


def test_nothing_is_reckoned_before_there_is_a_checkpoint_of_this_start(folder):
    folder.event(0, "start", 0, "node1")
    folder.checkpoint(10, 20)
    folder.event(600, "start", 20, "node1", restarts=1)
    assert read_status(folder.path).left is None


def test_the_log_of_rank_0_is_further_than_the_checkpoint(folder):
    folder.checkpoint(10, 20)
    folder.log(
        11, "rank-0.log", "=== 12:00  start 1 on node1\nstep 21/100  loss 0.500  7 tokens/s\nstep 22/100  loss 0.25"
    )
    status = read_status(folder.path)
    assert (status.step, status.steps, status.loss) == (22, 100, 0.25)
    assert status.alive >= BEGIN + timedelta(minutes=11)


@pytest.mark.parametrize(
    "event, note, state",
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


def test_a_run_without_slurm_has_a_state_too(folder):
    assert read_status(folder.path).state == "begun"
    (folder.path / "stopped").touch()
    assert read_status(folder.path).state == "stopped and saved; the same command goes on"


def test_a_finished_run_has_nothing_left_and_no_error(folder):
    folder.event(0, "start", 0, "node1")
    folder.checkpoint(10, 20)
    folder.log(11, "rank-0.log", "ValueError: of a turn before")
    (folder.path / "run.json").write_text(json.dumps({"figures": {"steps": 100}}))
    status = read_status(folder.path)
    assert (status.state, status.step, status.steps, status.left, status.error) == ("finished", 100, 100, None, None)


def test_the_error_of_the_rank_that_fell_silent_first_is_the_one_to_read(folder):
    folder.log(3, "rank-0.log", "Traceback\ntorch.distributed.DistBackendError: connection closed by peer\n")
    folder.log(
        2, "rank-5.log", "Traceback\nRuntimeError: first\nTraceback\ntorch.OutOfMemoryError: CUDA out of memory\n"
    )
    folder.log(4, "node-0.log", "exitcode  : 1 (pid: 3)\n")
    assert read_status(folder.path).error == "torch.OutOfMemoryError: CUDA out of memory (logs/7/rank-5.log)"


def test_where_no_rank_could_say_anything_what_is_said_of_it_counts(folder):
    folder.log(1, "rank-0.log", "step 1/2  loss 1.0\n")
    folder.log(2, "job.log", "srun: error: node2: task 1: Out Of Memory\n")
    assert read_status(folder.path).error == "srun: error: node2: task 1: Out Of Memory (logs/7/job.log)"
    folder.log(2, "node-1.log", "  exitcode  : -9 (pid: 12)  (SIGKILL)\n")
    assert read_status(folder.path).error == "exitcode  : -9 (pid: 12)  (SIGKILL) (logs/7/node-1.log)"


def test_an_error_of_a_turn_before_is_past(folder):
    folder.log(
        1, "rank-0.log", "=== 12:00  start 1 on node1\nOSError: gone\n=== 13:00  start 2 on node1\nstep 3/9  loss 1.5\n"
    )
    status = read_status(folder.path)
    assert status.error is None
    assert status.step == 3


def test_a_line_that_a_dying_node_left_half_written_is_passed_over(folder):
    folder.event(0, "start", 0, "node1")
    with (folder.path / "slurm.tsv").open("a") as file:
        file.write("2026-01-01T12:0")
    assert len(read_status(folder.path).starts) == 1


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(StatusError, match="is no run folder"):
        read_status(tmp_path)
    assert main(["status", str(tmp_path / "nowhere")]) == FAILED


def test_the_command_prints_it(folder, capsys):
    folder.event(0, "start", 0, "node1")
    folder.checkpoint(10, 20)
    folder.event(11, "again", 20)
    folder.event(20, "start", 20, "node[1-2]", restarts=1)
    folder.checkpoint(30, 40)
    folder.log(31, "rank-0.log", "step 41/100  loss 0.5\nRuntimeError: [bold]not markup[/bold]\n")
    assert main(["status", str(folder.path)]) == OK
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert printed[0] == f"{folder.path}: started by job 7 on node[1-2]"
    assert "step        41 of 100 (41%), loss 0.500" in printed
    assert "left        30 min after the newest checkpoint, at the speed since the last start" in printed
    assert any(line.startswith("started") and line.endswith("and again 1 time(s)") for line in printed)
    assert "last error  RuntimeError: [bold]not markup[/bold] (logs/7/rank-0.log)" in printed
