"""The script for a machine that is lent: a run in parts, its exam, and few files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from helpers import tiny

from shipped_weights.phone_vlm_tiny.__main__ import main

SCRIPT = Path(__file__).resolve().parents[3] / "shipped_weights/phone_vlm_tiny/lease.sh"
KEYS = ("--training.steps", "2", "--training.batch_size", "2")


def lease(folder: Path, name: str, minutes: str, **environment: str) -> subprocess.CompletedProcess:
    """The script with its run in `name`-run and its output in `name`."""
    settings = {"PYTHON": sys.executable, "CONFIG": str(folder / "tiny.yaml"), "SCREENS": "1", **environment}
    return subprocess.run(
        [SCRIPT, minutes, folder / name, *KEYS],
        env=os.environ | settings | {"RUN": str(folder / f"{name}-run")},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_a_run_in_two_leases_has_the_weights_of_one_and_its_exam(tmp_path):
    content = tiny.recipe(tmp_path, tmp_path / "run") | {"data": {}, "lessons": {"items": 4}}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(content))
    first = lease(tmp_path, "first", "0.0001")
    assert first.returncode == 75, first.stderr
    second = lease(tmp_path, "second", "9", FROM=str(tmp_path / "first"))
    assert second.returncode == 0, second.stderr
    for name in ("first", "second"):
        files = sorted((tmp_path / name).iterdir())
        assert [file.name for file in files] == ["exam.txt", "run.tar.00"]
        figures = json.loads(files[0].read_text().splitlines()[-1])
        assert figures["screens"] == 1
    whole = tmp_path / "whole"
    batch = ("--training.accumulation", "1")
    assert main(["--config", str(tmp_path / "tiny.yaml"), "--output", str(whole), *KEYS, *batch]) == 0
    one, other = (run / "model/model.safetensors" for run in (whole, tmp_path / "second-run"))
    assert one.read_bytes() == other.read_bytes()


def test_an_error_of_the_training_is_the_status_of_the_script(tmp_path):
    failed = lease(tmp_path, "out", "1")
    assert failed.returncode == 1
    assert "tiny.yaml" in failed.stderr
