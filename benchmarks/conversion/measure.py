"""What every road does alike: stay on its cores, run between two looks at the clocks, print one line of JSON.

Python's standard library only: TensorFlow's environment imports it too.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path


def make_parser(about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, nargs="+", required=True, help="the cores that all processes share")
    parser.add_argument("--output", type=Path, required=True, help="a new folder for what the road writes")
    parser.add_argument("--files", type=Path, nargs="+", required=True, help="gzip TFRecords")
    return parser


def report(road: Callable[[], None]) -> None:
    """Runs `road` and prints its `seconds` by the wall and its `cpu_seconds`, ended child processes included."""
    wall, cpu = time.perf_counter(), _cpu_seconds()
    road()
    print(json.dumps({"seconds": time.perf_counter() - wall, "cpu_seconds": _cpu_seconds() - cpu}))


def stay_on(cores: list[int]) -> None:
    """Before anything starts a thread: threads and processes inherit it."""
    os.sched_setaffinity(0, cores)


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
