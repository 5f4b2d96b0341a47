"""A worker that dies at any moment is named, with the input that it converted."""

import os
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import pytest

from vlm_agent.datasets.convert.workers import Job, _Worker
from vlm_agent.datasets.sources import Input
from vlm_agent.errors import DatasetError


@pytest.fixture
def dead():
    """A process that has ended with status 1."""
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"])
    process.wait()
    return SimpleNamespace(join=process.wait, exitcode=process.returncode)


JOB = Job(Input.of("first", "general", [Path("first.tfrecord")]), frozenset())


@pytest.mark.parametrize("job_was_read", [True, False])
def test_a_worker_that_dies_before_or_after_it_read_its_job_is_named(dead, job_was_read):
    here, there = Pipe()
    worker = _Worker(dead, here)
    worker.send(JOB)
    if job_was_read:
        there.recv()
    there.close()
    with pytest.raises(DatasetError, match="the worker that converted first died"):
        worker.result(JOB)


def test_a_worker_that_dies_while_it_sends_its_result_is_named(dead):
    here, there = Pipe()
    os.write(there.fileno(), (1000).to_bytes(4, "big") + b"half")
    there.close()
    with pytest.raises(DatasetError, match="the worker that converted first died"):
        _Worker(dead, here).result(JOB)


def test_a_worker_that_died_before_its_job_was_sent_is_named(dead):
    here, there = Pipe()
    there.close()
    with pytest.raises(DatasetError, match="the worker that converted first died"):
        _Worker(dead, here).send(JOB)
