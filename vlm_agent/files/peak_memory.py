"""The peak memory of a process and its descendants."""

import threading
from contextlib import suppress

import psutil

_SAMPLE_SECONDS = 0.5


class PeakMemory:
    """Measures the peak memory of this process and its descendants, in bytes, while the block runs.

    Sums their resident sets twice a second. Pages that processes share are counted once per process, so the sum is too
    high; a peak between two samples is missed.
    """

    def __enter__(self) -> "PeakMemory":
        self.peak = _resident_bytes()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_SAMPLE_SECONDS):
            self.peak = max(self.peak, _resident_bytes())


def _resident_bytes() -> int:
    here, total = psutil.Process(), 0
    for process in (here, *here.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has ended since it was listed
            total += process.memory_info().rss
    return total
