"""Batches that worker processes prepare (`data.workers`): their errors, their death, and their end."""

import os
import signal

import pytest
import torch
from helpers.training import forks

from vlm_agent.errors import DatasetError, TrainingError
from vlm_agent.training.engine import load
from vlm_agent.training.run_folder.layout import explained

CPU = torch.device("cpu")


class Rows:
    def __init__(self, prepare):
        self.prepare = prepare

    def __len__(self):
        return 2

    def __getitem__(self, number):
        return {"number": self.prepare(number)}


def damaged(number):
    raise DatasetError("shard 3 is damaged; convert it again")


def missing(number):
    raise FileNotFoundError(2, "No such file or directory", "shards/3.parquet")


def killed(number):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_the_data_keeps_its_one_line(workers):
    with pytest.raises(DatasetError, match=r"^shard 3 is damaged; convert it again$"):
        list(load(Rows(damaged), [0, 1], workers, CPU))
    with pytest.raises(FileNotFoundError) as error:
        list(load(Rows(missing), [0, 1], workers, CPU))
    assert error.value.filename == "shards/3.parquet"


def test_a_worker_that_dies_is_an_error_with_a_remedy(tmp_path):
    with pytest.raises(TrainingError, match=r"\(data\.workers\) died.* with fewer data\.workers"), explained(tmp_path):
        list(load(Rows(killed), [0, 1], 1, CPU))
    with pytest.raises(RuntimeError, match="a bug"), explained(tmp_path):
        raise RuntimeError("a bug")


_KEPT = """
import sys
import torch
from vlm_agent.training.engine import load
sys.kept = load([{}] * 9, range(9), 1, torch.device("cpu"))
next(sys.kept)
"""
"""Keeps its batches to the end, as the traceback of an error that nothing catches does."""

_COLLECTED = f"""{_KEPT}
import gc
cycle = [sys.kept]
cycle.append(cycle)
del sys.kept, cycle
gc.collect()
"""
"""Loses its batches in a cycle of garbage, as an error does that was caught."""


@pytest.mark.parametrize("script", [_KEPT, _COLLECTED], ids=["kept", "collected"])
def test_a_process_that_fails_does_not_wait_for_its_workers(tmp_path, script):
    (tmp_path / "script.py").write_text(script)
    assert forks.start(tmp_path / "script.py", output=tmp_path / "printed").wait(60) == 0
