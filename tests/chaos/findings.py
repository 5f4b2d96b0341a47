"""What a chaos run finds: counters, violations, memory over time, and tracebacks in logs."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

TRACEBACK = "Traceback (most recent call last)"
MIB = 1 << 20


class Findings:
    """Counters by (who, what), and violations as text; any thread may add to them."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.violations: list[str] = []
        self._lock = threading.Lock()

    def count(self, who: str, what: str) -> None:
        with self._lock:
            self.counts[who, what] += 1

    def violation(self, who: str, text: str) -> None:
        with self._lock:
            self.violations.append(f"{who}: {text}")
        print(f"VIOLATION {who}: {text}", flush=True)


class Memory:
    """Samples the resident memory of processes and their children every `interval` seconds, in a thread."""

    interval = 1.0

    def __init__(self) -> None:
        self.samples: dict[str, list[tuple[float, int]]] = {}
        """Name → (seconds since the start, bytes of the whole tree of processes)."""
        self._roots: dict[str, int] = {}
        self._begin = time.monotonic()
        threading.Thread(target=self._sample_forever, daemon=True).start()

    def watch(self, name: str, process: int) -> None:
        """From now on `name` is this process."""
        self._roots[name] = process

    def peak(self, name: str, since: float = 0.0, until: float = float("inf")) -> int:
        """The maximum in bytes between two times, 0 without a sample."""
        return max((size for at, size in self.samples.get(name, []) if since <= at < until), default=0)

    def table(self, columns: int = 10) -> list[str]:
        """A line for each name: the peak in MiB in each of `columns` equal parts of the time."""
        end = time.monotonic() - self._begin
        part = end / columns
        return [
            f"{name:24}"
            + "".join(f"{self.peak(name, part * i, part * (i + 1)) // MIB or '-':>7}" for i in range(columns))
            for name in sorted(self.samples)
        ]

    def _sample_forever(self) -> None:
        while True:
            for name, root in tuple(self._roots.items()):
                with suppress(psutil.Error):
                    process = psutil.Process(root)
                    size = _resident(process) + sum(map(_resident, process.children(recursive=True)))
                    self.samples.setdefault(name, []).append((time.monotonic() - self._begin, size))
            time.sleep(self.interval)


def _resident(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return process.memory_info().rss
    return 0


_ORPHAN, _START = "EOFError: Ran out of input", "/multiprocessing/spawn.py"


def tracebacks(folder: Path) -> list[str]:
    """`FILE: last line of the traceback` for every traceback in the logs below `folder`.

    Except of a child whose parent was killed while starting it: Python prints a traceback of its own before any code of
    this package runs in the child.
    """
    found = []
    for path in sorted(folder.rglob("*.log")):
        *_, parts = [path.read_text(encoding="utf-8", errors="replace").split(TRACEBACK)]
        for part in parts[1:]:
            lines = part.splitlines()[1:]
            end = next((number for number, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
            error = "".join(lines[end : end + 1])
            frames = [line for line in lines[:end] if line.startswith('  File "')]
            if error == _ORPHAN and all(_START in frame for frame in frames[1:]):
                continue
            found.append(f"{path.name}: {error}")
    return found


def differences(expected: dict, found: dict) -> list[str]:
    """The keys of two flat records whose values differ, each with both values in short."""
    keys = [key for key in {**expected, **found} if expected.get(key) != found.get(key)]
    return [f"{key}: {_short(expected.get(key))} became {_short(found.get(key))}" for key in keys]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


Record = Callable[[Path], dict]
"""The result of a command in a folder, as a flat record that two runs must share."""
