"""`RUN/progress.jsonl`: whole lines, each step once, also after a kill and a resume."""

import json

from rich.console import Console

from vlm_agent.training.journal import PROGRESS, Journal, append_progress, keep_steps, read_progress, total_seconds


def steps(path) -> list[int]:
    return [line["step"] for line in read_progress(path)]


def test_lines_come_back_in_order_with_every_digit(tmp_path):
    path = tmp_path / "progress.jsonl"
    assert read_progress(path) == []
    lines = [{"step": 1, "loss": 0.1 + 0.2}, {"step": 2, "loss": 1e-9}, {"step": 2, "eval_loss": 1 / 3}]
    for line in lines:
        append_progress(path, line)
    assert read_progress(path) == lines
    assert [json.loads(text) for text in path.read_text().splitlines()] == lines


def test_a_resumed_run_has_each_step_once(tmp_path):
    path = tmp_path / "progress.jsonl"
    for step in (1, 2, 3, 4):
        append_progress(path, {"step": step, "loss": 1.0})
    with path.open("a") as file:
        file.write('{"step": 5, "lo')
    assert steps(path) == [1, 2, 3, 4]
    keep_steps(path, 2)
    append_progress(path, {"step": 3, "loss": 1.0})
    assert steps(path) == [1, 2, 3]
    assert path.read_bytes().endswith(b"\n")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_run_that_starts_over_starts_an_empty_file(tmp_path):
    path = tmp_path / "progress.jsonl"
    keep_steps(path, 0)
    assert not path.exists()
    append_progress(path, {"step": 1, "loss": 1.0})
    keep_steps(path, 0)
    assert read_progress(path) == []


def test_lines_without_progress_are_skipped(tmp_path):
    path = tmp_path / "progress.jsonl"
    path.write_bytes(b'[1]\n{"loss": 1}\n\xff\n{"step": 1}\n')
    assert steps(path) == [1]


def test_the_seconds_of_all_starts_are_counted_and_a_stopped_one_leaves_no_second_line_of_a_step(tmp_path):
    path = tmp_path / "progress.jsonl"
    assert total_seconds(path) == 0
    append_progress(path, {"step": 4, "loss": 1.0, "total_seconds": 3.5})
    append_progress(path, {"step": 6, "total_seconds": 5.25})  # stopped by a signal between two log steps
    assert total_seconds(path) == 5.25
    keep_steps(path, 6)
    assert [line["step"] for line in read_progress(path)] == [4]


def test_the_time_of_lost_steps_stays_known_if_the_next_start_is_killed_before_a_log_line(tmp_path):
    append_progress(tmp_path / PROGRESS, {"step": 10, "loss": 1.0, "total_seconds": 100.0})
    append_progress(tmp_path / PROGRESS, {"step": 15, "loss": 1.0, "total_seconds": 600.0})
    for _ in range(2):  # each resumes after step 10 and is killed at once
        journal = Journal(tmp_path, 10, 20, Console(quiet=True), ())
        assert journal.total_seconds() >= 600
        assert steps(tmp_path / PROGRESS) == [10, 10]


def test_a_validation_that_is_repeated_after_a_kill_has_one_line(tmp_path):
    append_progress(tmp_path / PROGRESS, {"step": 10, "loss": 1.0})
    for _ in range(2):  # each resumes after step 10 with its validation, and is killed before the checkpoint has it
        Journal(tmp_path, 10, 20, Console(quiet=True), ()).log(10, {"eval_loss": 0.5, "eval_accuracy": 0.25})
    assert ["eval_loss" in line for line in read_progress(tmp_path / PROGRESS)] == [False, True]
