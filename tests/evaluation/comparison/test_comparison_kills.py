"""A comparison that is killed in the middle of its stages ends with the table of one that is not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from helpers.evaluation import comparisons
from helpers.evaluation.comparisons import table

pytestmark = pytest.mark.slow

KILLED_IN = ("simulate", "convert", "train", "evaluate", "evaluate --online")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("comparison")
    return comparisons.write(folder / "comparison.yaml", comparisons.trained(folder))


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


def test_kills_in_every_kind_of_stage_change_no_figure(comparison, tmp_path):
    for stage in KILLED_IN:
        kill_in(stage, start(comparison, tmp_path / "killed"))
    for output in (tmp_path / "killed", tmp_path / "whole"):
        process = start(comparison, output)
        text, _ = process.communicate(timeout=900)
        assert process.returncode == 0, text
    assert table(tmp_path / "killed") == table(tmp_path / "whole")
    ran = json.loads((tmp_path / "killed/comparison.json").read_text())["stages"]
    assert any(stage["killed"] for stage in ran.values())
    page = (tmp_path / "whole/comparison.html").read_text()
    assert "<script>" not in page
    assert "&lt;b&gt;One&lt;/b&gt;" in page


def test_an_agent_whose_stage_fails_is_named_and_the_others_are_compared(comparison, tmp_path):
    content = yaml.safe_load(comparison.read_text())
    content["agents"]["broken"] = content["agents"]["one"] | {"name": "Broken", "overrides": {"data.max_tokens": 3}}
    path = tmp_path / "comparison.yaml"
    path.write_text(yaml.safe_dump(content))
    process = start(path, tmp_path / "out")
    text, _ = process.communicate(timeout=900)
    assert process.returncode == 1
    assert "broken, seed 0: train-broken-0 failed with status 1" in text
    written = json.loads((tmp_path / "out/comparison.json").read_text())["agents"]
    assert {key: bool(about["rows"]) for key, about in written.items()} == {"one": True, "other": True, "broken": False}
