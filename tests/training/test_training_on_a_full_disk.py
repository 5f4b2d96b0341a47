"""A disk that takes no more, while a run saves: one line, and the same command resumes. A limit of the size of files
stands for the disk."""

import json
import resource
from contextlib import contextmanager

import pytest
import yaml
from helpers import tiny
from helpers.tiny import write_shards

from vlm_agent.cli import FAILED, OK, main
from vlm_agent.errors import TrainingError
from vlm_agent.training.run_folder.layout import explained

KINDS = {"weights": "model.safetensors", "optimizer": "optimizer.pt"}


@contextmanager
def files_of_at_most(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """`train` with its options; the sizes of the files of its checkpoints."""
    folder = tmp_path_factory.mktemp("command")
    shards = write_shards(folder / "shards", [tiny.episode(0), tiny.episode(1)])
    content = tiny.recipe(shards, folder / "run")
    content["training"] |= {"steps": 2, "save_steps": 1, "optimizer": {"name": "adamw", "learning_rate": 0.002}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    words = ["train", "--config", str(folder / "recipe.yaml"), "--output"]
    assert main([*words, str(folder / "run")]) == OK
    checkpoint = folder / "run" / "checkpoints" / "checkpoint-2"
    return words, {kind: (checkpoint / name).stat().st_size for kind, name in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_is_full_while_a_run_saves_is_one_line_and_the_run_resumes(command, tmp_path, capfd, kind):
    words, sizes = command
    run = tmp_path / "run"
    assert sizes["weights"] < sizes["optimizer"]
    with files_of_at_most(sizes[kind] * 9 // 10):
        assert main([*words, str(run)]) == FAILED
    error = capfd.readouterr().err
    assert f"vlm-agent train: cannot write to {run}: File too large; its disk, mounted at /" in error
    assert "run the same command again to resume" in error
    assert main([*words, str(run)]) == OK
    assert json.loads((run / "run.json").read_text())["figures"]["steps"] == 2
    assert not list(run.glob(".room*"))


def test_other_errors_keep_their_traceback(tmp_path):
    for error in (RuntimeError("unexpected pos 4 vs 3"), RuntimeError("a bug"), FileNotFoundError(2, "no", "x")):
        with pytest.raises(type(error)) as raised, explained(tmp_path):
            raise error
        assert not isinstance(raised.value, TrainingError)
