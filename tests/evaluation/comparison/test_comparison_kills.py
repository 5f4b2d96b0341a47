"""A comparison that is killed in the middle of its stages ends with the table of one that is not, whatever fails."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.evaluation import comparisons
from helpers.evaluation.comparisons import table

pytestmark = pytest.mark.slow

KILLED_IN = ("simulate", "convert", "train", "evaluate", "evaluate --online")


@pytest.fixture
def comparison(tmp_path) -> Path:
    """Two agents, and one that cannot be trained."""
    agents = comparisons.trained(tmp_path)
    broken = agents["one"] | {"name": "Broken", "overrides": {"data.max_tokens": 3}}
    return comparisons.write(tmp_path / "comparison.yaml", {**agents, "broken": broken})


def start(comparison: Path, output: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "vlm_agent.cli", "compare", str(comparison), "--output", str(output)]
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    )


def kill_in(stage: str, process: subprocess.Popen) -> None:
    """Kills the whole session soon after the stage has begun."""
    for line in process.stdout:
        if f"$ vlm-agent {stage}" in line:
            break
    try:
        process.wait(4.0)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_kills_in_every_kind_of_stage_change_no_figure_and_a_stage_that_fails_is_named(comparison, tmp_path):
    for stage in KILLED_IN:
        kill_in(stage, start(comparison, tmp_path / "killed"))
    for output in (tmp_path / "killed", tmp_path / "whole"):
        process = start(comparison, output)
        text, _ = process.communicate(timeout=900)
        assert process.returncode == 1, text
        assert "broken, seed 0: train-broken-0 failed with status 1" in text
    assert table(tmp_path / "killed") == table(tmp_path / "whole")
    content = json.loads((tmp_path / "killed/comparison.json").read_text())
    assert any(stage["killed"] for stage in content["stages"].values())
    compared = {key: bool(about["rows"]) for key, about in content["agents"].items()}
    assert compared == {"one": True, "other": True, "broken": False}
    page = (tmp_path / "whole/comparison.html").read_text()
    assert "<script>" not in page
    assert "&lt;b&gt;One&lt;/b&gt;" in page
