"""How far an evaluation is: a bar on a terminal, a line a minute in a log."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

_LOG_SECONDS = 60.0


class StepProgress:
    """Counts the steps that are predicted in this process, of `steps` in all."""

    def __init__(self, console: Console, steps: int):
        self._console, self._steps, self._done = console, steps, 0
        self._began = self._logged = time.monotonic()
        self._bar: Progress | None = None

    @contextmanager
    def shown(self) -> Iterator["StepProgress"]:
        if not self._console.is_terminal or not self._steps:
            yield self
            return
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"))
        with Progress(*columns, TimeRemainingColumn(), console=self._console, transient=True) as self._bar:
            self._task = self._bar.add_task("predicting", total=self._steps)
            yield self

    def add(self, run: str, steps: int) -> None:
        """So many more steps of a run are predicted and written."""
        self._done += steps
        now = time.monotonic()
        rate = self._done / max(now - self._began, 1e-9)
        line = f"{run.replace('_', ' ')}: {self._done:,} of {self._steps:,} steps ({rate:,.1f}/s)"
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=line)
        elif now - self._logged >= _LOG_SECONDS:
            self._logged = now
            left = (self._steps - self._done) / rate
            self._console.print(f"{line}, about {left / 60:,.0f} min left", highlight=False, soft_wrap=True)
