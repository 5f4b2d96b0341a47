"""Time and memory of work on a GPU or a CPU."""

import statistics
import time
from collections.abc import Callable

import torch


def wait_for(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def milliseconds(work: Callable[[], object], device: str, repeats: int = 10, warm_up: int = 2) -> float:
    """Median wall time of a call, launches and reads from the device included; on a CPU, of one call after another."""
    if device == "cpu":
        repeats, warm_up = 1, 1
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(repeats):
        wait_for(device)
        start = time.perf_counter()
        work()
        wait_for(device)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)
