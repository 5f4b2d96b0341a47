"""Progress of a conversion, on a terminal or in a log file, and the limit on bad steps."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.filesize import decimal

from vlm_agent.errors import DatasetError
from vlm_agent.files.console import Progress

TICK_SECONDS = 0.25
_ENOUGH_STEPS = 1000
"""The fraction of bad steps is checked from this many steps on."""


class Watch:
    """Counts steps, bad records and bytes. Call `tick` often; it shows the counts.

    `files` and `size` (bytes): the work of this run. `done`: the number of files that were converted before. `before`:
    the numbers of steps and bad records in these files. They count in the fraction; otherwise a run that was stopped
    before its worst file could not be resumed.
    """

    def __init__(
        self,
        console: Console,
        files: int,
        size: int,
        done: int = 0,
        max_bad_fraction: float | None = None,
        before: tuple[int, int] = (0, 0),
    ) -> None:
        self._console, self._files, self._size, self._done = console, files, size, done
        self._max_bad_fraction = max_bad_fraction
        self._steps_before, self._bad_before = before
        self._steps = self._bad = self._bytes = self._files_done = 0
        self._shown = time.monotonic()
        self._progress = Progress(console, size, "bytes")

    @contextmanager
    def shown(self) -> Iterator["Watch"]:
        if self._done:
            self._console.print(f"Skipping {self._done:,} file(s) that are already converted", highlight=False)
        with self._progress.shown():
            yield self

    def report(self, steps: int, bad: int, size: int) -> None:
        """Adds numbers of steps, bad records, and bytes of the input files."""
        self.set(self._steps + steps, self._bad + bad, self._bytes + size)
        self.tick()

    def set(self, steps: int, bad: int, size: int) -> None:
        """Sets the numbers since the start of this run."""
        self._steps, self._bad, self._bytes = steps, bad, size

    def file_done(self) -> None:
        self._files_done += 1
        self._progress.update(self._bytes, self._line(), is_stage_end=True)

    def tick(self) -> None:
        """Shows the counts at most every `TICK_SECONDS`. Raises DatasetError if too many steps are bad."""
        now = time.monotonic()
        if now - self._shown < TICK_SECONDS:
            return
        self._shown = now
        if self._steps >= _ENOUGH_STEPS:
            steps, bad = self._steps_before + self._steps, self._bad_before + self._bad
            check_fraction(bad, steps, self._max_bad_fraction)
        self._progress.update(self._bytes, self._line())

    def _line(self) -> str:
        return (
            f"{self._files_done:,}/{self._files:,} files, {decimal(self._bytes)} of {decimal(self._size)}, "
            f"{self._steps:,} steps ({self._steps / self._progress.seconds:,.0f}/s), {self._bad:,} bad"
        )


def check_fraction(bad: int, steps: int, allowed: float | None) -> None:
    """Raises DatasetError if more than the `allowed` fraction of the steps is bad. None allows any."""
    if allowed is not None and bad > allowed * steps:
        raise DatasetError(
            f"{bad:,} of {steps:,} steps read are bad, more than --max-bad-fraction {allowed:g} allows; run the same "
            "command with a larger fraction to resume"
        )
