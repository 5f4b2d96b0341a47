"""The most memory that a command and its workers hold."""

import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass

import psutil

_SAMPLE_SECONDS = 0.02


@dataclass
class PeakMemory:
    """Resident bytes, sampled 50 times a second: of all processes at once, and of the largest one.

    Pages that processes share are counted for each of them, so the truth of `together` is lower.
    """

    together: int = 0
    largest: int = 0


def watch(command: list, environment: dict[str, str]) -> PeakMemory:
    """Raises SystemExit where the command does not end with status 0."""
    peak = PeakMemory()
    process = subprocess.Popen(command, env=environment)
    while process.poll() is None:
        sizes = _resident(psutil.Process(process.pid))
        peak.together = max(peak.together, sum(sizes))
        peak.largest = max(peak.largest, *sizes)
        time.sleep(_SAMPLE_SECONDS)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with status {process.returncode}")
    return peak


def _resident(process: psutil.Process) -> list[int]:
    sizes = [0]
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it ended since it was listed, and holds nothing
            sizes.append(each.memory_info().rss)
    return sizes
