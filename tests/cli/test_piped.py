"""Commands whose output is a file or a pipe, as in a job's log."""

import subprocess
import sys

from helpers.runs.adapted_run import write_run


def piped(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "vlm_agent.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_loading_a_model_prints_no_warnings_and_no_bars(tmp_path):
    run = write_run(tmp_path)
    options = ("--shards", tmp_path / "shards", "--split", "train", "--limit", 1, "--controls", "none")
    done = piped("evaluate", "--checkpoint", run, *options, "--output", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Partial match" in done.stdout
