"""Watching a conversion: how far it is, for a terminal or for a log file, and whether too much of it is bad."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from vlm_agent.datasets import DatasetError

TICK_SECONDS = 0.25
_LOG_SECONDS = 60.0
_ENOUGH_STEPS = 1000
"""So many steps are read before a fraction of them says anything."""


class Watch:
    """Counts what is reported; `tick`, called often, shows it.

    `files` and `size` (bytes) are what is to be done in this run. `done` is of how many files that leaves out, because
    they were done before, and `before` how many steps and bad records those had: they count in the fraction, or a run
    that was stopped before its worst file could never go on.
    """

    def __init__(
        self,
        console: Console,
        files: int,
        size: int,
        done: int = 0,
        max_bad_fraction: float | None = None,
        before: tuple[int, int] = (0, 0),
    ):
        self._console, self._files, self._size, self._done = console, files, size, done
        self._max_bad_fraction = max_bad_fraction
        self._steps_before, self._bad_before = before
        self._steps = self._bad = self._bytes = self._files_done = 0
        self._began = self._shown = self._logged = time.monotonic()
        self._bar: Progress | None = None

    @contextmanager
    def shown(self) -> Iterator["Watch"]:
        if self._done:
            self._console.print(f"{self._done:,} file(s) were converted before and stay as they are", highlight=False)
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:.0f} %"),
        )
        bar = Progress(*columns, TimeRemainingColumn(), console=self._console, transient=True)
        if not self._console.is_terminal:
            yield self
            return
        with bar:
            self._bar, self._task = bar, bar.add_task("converting", total=self._size or None)
            yield self

    def report(self, steps: int, bad: int, size: int) -> None:
        """So many more steps and bad records were read, and so many bytes of the input files."""
        self.set(self._steps + steps, self._bad + bad, self._bytes + size)
        self.tick()

    def set(self, steps: int, bad: int, size: int) -> None:
        """So many there are in all, since this run began."""
        self._steps, self._bad, self._bytes = steps, bad, size

    def file_done(self) -> None:
        self._files_done += 1

    def tick(self) -> None:
        """Raises DatasetError when more is bad than is allowed."""
        now = time.monotonic()
        if now - self._shown < TICK_SECONDS:
            return
        self._shown = now
        if self._steps >= _ENOUGH_STEPS:
            steps, bad = self._steps_before + self._steps, self._bad_before + self._bad
            check_fraction(bad, steps, self._max_bad_fraction)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._bytes, description=self._line())
        elif now - self._logged >= _LOG_SECONDS:
            self._logged = now
            self._console.print(f"{self._line()}, {self._remaining()}", highlight=False, soft_wrap=True)

    def _line(self) -> str:
        seconds = max(time.monotonic() - self._began, 1e-9)
        return (
            f"{self._files_done:,}/{self._files:,} files, {decimal(self._bytes)} of {decimal(self._size)}, "
            f"{self._steps:,} steps ({self._steps / seconds:,.0f}/s), {self._bad:,} bad"
        )

    def _remaining(self) -> str:
        if not self._bytes:
            return "no end in sight yet"
        seconds = (time.monotonic() - self._began) * (self._size - self._bytes) / self._bytes
        return f"about {seconds / 60:,.0f} min left"


def check_fraction(bad: int, steps: int, allowed: float | None) -> None:
    """Raises DatasetError when a larger share of the steps is bad than is allowed."""
    if allowed is not None and bad > allowed * steps:
        raise DatasetError(
            f"{bad:,} of {steps:,} steps read are bad, more than --max-bad-fraction {allowed:g} allows; what was "
            "converted stays, so the same command with a larger fraction goes on from here"
        )
