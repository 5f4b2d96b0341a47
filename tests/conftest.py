"""Fixtures for every test. Tests run on the CPU, also beside a GPU; `make gpu` runs those that are marked `gpu`."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if not os.environ.get("TEST_ON_GPU"):  # before torch is imported; helpers fork, which CUDA does not survive
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import vlm_agent.models  # noqa: F401  (before peft and timm, which fail to import without torchvision's operators)

pytest_plugins = ["helpers.phones.fixtures"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # `make test &` in a script; tests that send Ctrl-C would wait
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real data that lies beside the checkout on development machines; its tests skip, by name, where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"real data is not at {folder}")
    return folder


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP])
def stop_signal(request: pytest.FixtureRequest) -> Iterator[int]:
    """A signal that ends a command. nohup ignores the second, with which pytest may have been started."""
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collects garbage neither during the imports of all tests nor, later, among what they imported: a collection
    walks a million objects that stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Commands that a test runs in this process set thresholds for a process of their own. Here collections also walk
    what other tests left, so they stay rare."""
    gc.set_threshold(10_000, 10, 10)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """pytest collects garbage five times at its end, to find errors of destructors."""
    gc.freeze()


LONGEST_FIRST = (
    "test_installs.py",
    "test_pipeline.py",
    "test_smollm2.py",
    "test_demo.py",
    "test_gpu_benchmarks.py",
    "test_packaging.py",
    "test_references_in_runs.py",
    "test_train.py",
    "test_features_array.py",
    "test_overfit.py",
    "test_served_model_over_adb.py",
    "test_deepspeed.py",
)
"""Files that take half a minute to several minutes; begun last, they would leave all cores but one idle at the end."""


ONE_AFTER_THE_OTHER = ("test_chaos.py", "test_doctor.py", "test_touched.py")
"""Files whose tests wait for processes by the clock; they and tests of the one Slurm cluster share a process."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Has `--dist loadgroup` keep each file in one process. pytest-xdist 3.8 passes groups on in an attribute that
    pytest 9.2 does not read, and schedules every test by itself."""
    from xdist.scheduler import LoadScopeScheduling

    class InGroups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = Path(nodeid.partition("::")[0])
            return "alone" if path.parent.name == "slurm" or path.name in ONE_AFTER_THE_OTHER else str(path)

    return InGroups(config, log) if config.getvalue("dist") == "loadgroup" else None
