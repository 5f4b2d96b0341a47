"""Two runs do not write into one folder, and the lock of a dead process is released."""

import errno
import io
import os
import socket
import time
from pathlib import Path

import pytest
import yaml
from helpers import tiny
from helpers.training import forks
from rich.console import Console

from vlm_agent.errors import DatasetError
from vlm_agent.models.run_layout import LOCK
from vlm_agent.recipe.run import read_recipe
from vlm_agent.training.run_folder.layout import run_lock
from vlm_agent.training.train import train

_STUCK = """
import sys, time
from pathlib import Path
from vlm_agent.training import train as module
from vlm_agent.training.run_folder import checkpoints
from rich.console import Console
from vlm_agent.recipe.run import read_recipe

checkpoints.seal = lambda *_: time.sleep(600)
module.train(read_recipe(Path(sys.argv[1])), Console())
"""
"""A run that does not exit after its first checkpoint is written but not sealed, with a worker process."""


@pytest.fixture
def recipe(tmp_path) -> Path:
    shards = tiny.write_shards(tmp_path / "shards", [tiny.episode(number) for number in range(4)])
    content = tiny.recipe(shards, tmp_path / "run")
    content["training"] |= {"steps": 2, "save_steps": 1}
    content["data"]["workers"] = 1
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_second_run_into_the_same_folder_is_refused_and_a_dead_ones_lock_is_taken_over(recipe, tmp_path):
    script = tmp_path / "stuck.py"
    script.write_text(_STUCK)
    first = forks.start(script, recipe, output=tmp_path / "printed")
    try:
        checkpoint = tmp_path / "run" / "checkpoints" / "checkpoint-1" / "rng_state_0.pth"
        deadline = time.monotonic() + 120
        while not checkpoint.exists() and first.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        before = contents(tmp_path / "run")
        with pytest.raises(DatasetError, match="another process is training into") as refusal:
            train(read_recipe(recipe), Console(file=io.StringIO()))
        assert f"(process {first.pid} on {socket.gethostname()}, since " in str(refusal.value)
        assert contents(tmp_path / "run") == before
    finally:
        first.kill()
        first.wait()
    train(read_recipe(recipe), Console(file=io.StringIO()))
    assert (tmp_path / "run" / "run.json").is_file()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_file_system_without_locks_is_reported_and_trains(tmp_path, monkeypatch, caplog):
    def unsupported(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", unsupported)
    with run_lock(tmp_path / "run"):
        pass
    assert "run: the file system has no locks (Function not implemented)" in caplog.text


def test_a_lock_is_free_again_in_the_same_process(tmp_path):
    for _ in range(2):
        with run_lock(tmp_path / "run"):
            assert f"process {os.getpid()} on " in (tmp_path / "run" / LOCK).read_text()
            with pytest.raises(DatasetError), run_lock(tmp_path / "run"):
                pass
