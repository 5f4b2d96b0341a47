"""Runs pytest in forks of one process that has imported the large libraries, so that a run begins within a second."""

import importlib
import os
import re
import signal
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import hypothesis
import pytest

_LIBRARIES = (
    "vlm_agent.files.imports",  # before torchvision; the rest of the package is imported by each fork
    "torch._dynamo",
    "torch.utils.data",
    "numpy.random",
    "pandas",
    "PIL.Image",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "rapidocr",
    "scipy.sparse",
    "transformers.models.qwen2_vl.modeling_qwen2_vl",
    "transformers.trainer",
    "peft",
    "timm",
)
_OUTCOME = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - (.*))?$", re.M)


def imported(copy: Path) -> None:
    """Imports what most tests import, for a copy of the repository at `copy`, and makes it the current folder."""
    os.chdir(copy)
    os.environ |= {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "400"}
    sys.path.insert(0, str(copy))
    for name in _LIBRARIES:
        importlib.import_module(name)
    slow = hypothesis.HealthCheck.too_slow  # a busy machine is not a mutation
    found = hypothesis.Phase.explicit, hypothesis.Phase.generate  # nobody reads the smallest example: no shrinking
    hypothesis.settings.register_profile(
        "mutations", deadline=None, derandomize=True, database=None, suppress_health_check=[slow], phases=found
    )
    hypothesis.settings.load_profile("mutations")


def failures(tests: list[str], timeout: float, options: tuple[str, ...] = ("-x",)) -> list[tuple[str, str]]:
    """(test, first line of its error) of every test that fails; ("time limit", "") after `timeout` seconds.

    Call `imported` first. The same random choices of Hypothesis in each run.
    """
    output = Path(f"../output-{os.getpid()}.txt")
    fork = get_context("fork").Process(target=_pytest, args=(tests, options, output))
    fork.start()
    fork.join(timeout)
    hung = fork.is_alive()
    if fork.pid is not None:
        _killed_group(fork.pid)
    fork.join()
    text = output.read_text(encoding="utf-8", errors="replace")
    output.unlink()
    if hung:
        return [("time limit", "")]
    if fork.exitcode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):  # all of them may be slow
        return []
    return [(test, line or "") for test, line in _OUTCOME.findall(text)] or [(f"exit status {fork.exitcode}", "")]


def _pytest(tests: list[str], options: tuple[str, ...], output: Path) -> None:
    os.setsid()
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    code = pytest.main(["-q", "--tb=line", "-p", "no:cacheprovider", "--basetemp=../tmp", *options, *tests])
    sys.stdout.flush()
    sys.exit(int(code))


def _killed_group(leader: int) -> None:
    """Kills what a run left behind, such as servers whose tests were killed."""
    for _ in range(50):
        try:
            os.killpg(leader, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return
        time.sleep(0.02)
