"""The terminal: console, quiet libraries, tables, progress.

Everything that a command prints passes `neutral`: `make_console`, `say` and log messages. Texts of traces, models,
servers and files can then not move the cursor, set the title or clear the screen.
"""

import logging
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # rich takes 0.1 s to import, and `vlm-agent --help` must not wait for it
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.segment import Segment
    from rich.table import Table

_LOG_SECONDS, _LOG_COLUMNS = 60.0, 160

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and line feed, those that reverse a line, and surrogates, which UTF-8 cannot hold."""


def neutral(text: str) -> str:
    """`text` with the replacement character for each control character of a terminal."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def only_printable(text: str) -> str:
    """`text` with the replacement character for every character that is not printable, line feeds and characters that
    reverse a line included."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def say(text: str = "", stderr: bool = False, end: str = "\n") -> None:
    """Prints plain text at once: a pipe shows it before the output of a later process."""
    print(neutral(text), end=end, file=sys.stderr if stderr else sys.stdout, flush=True)


def print_plain(console: "Console", text: str) -> None:
    """Prints text as it is: without colours, markup or line breaks of the console's own."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def make_console(stderr: bool = False) -> "Console":
    """A console on which texts are plain: brackets are no markup, and `neutral` holds for all of them. A log is as wide
    as tables need."""
    stream = sys.stderr if stderr else sys.stdout
    is_seen = (stream is not None and stream.isatty()) or "COLUMNS" in os.environ
    return _console_class()(stderr=stderr, markup=False, emoji=False, width=None if is_seen else _LOG_COLUMNS)


@cache
def _console_class() -> "type[Console]":
    from rich.console import Console
    from rich.segment import Segment

    class PlainConsole(Console):
        def render(self, renderable: Any, options: Any = None) -> "Iterator[Segment]":
            for segment in super().render(renderable, options):
                is_own = segment.control is not None  # such as a progress bar's movements of the cursor
                yield segment if is_own else Segment(neutral(segment.text), segment.style)

    return PlainConsole


class _PlainLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return neutral(super().format(record))


def plain_log() -> None:
    """`neutral` for messages of `logging`, where no handler is configured."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PlainLines())


def quiet_libraries() -> None:
    """Drops warnings that libraries log at every start or model load, and that need no action. To be called before
    transformers is imported; weights that a checkpoint lacks are errors (`models.pretrained.complete_model`)."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # peft reads it of every model with an adapter.
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
    # The card of a model that is saved before it has one.
    logging.getLogger("huggingface_hub.repocard").setLevel(logging.ERROR)
    # More loader processes than cores: the recipe or the command line asked for them.
    warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
    # DeepSpeed's ZeRO calls them in every step, on every rank.
    collectives = r"`torch\.distributed\.(all_gather_into_tensor|reduce_scatter_tensor)` is deprecated"
    warnings.filterwarnings("ignore", collectives, FutureWarning, r"torch\.distributed\.c10d_logger")
    needless = "Setting accelerator to CPU"
    logging.getLogger("DeepSpeed").addFilter(lambda record: needless not in record.getMessage())


def hide_loading_bars() -> None:
    """Hides transformers' bars for the weights that it reads and writes. Bars of downloads stay. Imports
    transformers."""
    from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils.logging import disable_progress_bar

    were_disabled = are_progress_bars_disabled()
    disable_progress_bar()  # those of downloads, too
    if not were_disabled:
        enable_progress_bars()


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a closed connection, end the block by a KeyboardInterrupt with the signal as its argument;
    Ctrl-C has none. One that is ignored stays so (`nohup`)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    before = [signal.signal(each, stop) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)


def new_table(title: str, columns: Sequence[str], left: Collection[str] = ()) -> "Table":
    """An empty table. The first column and those in `left` are left-aligned, the others right-aligned.

    Title and columns are plain text: brackets in them are not markup. Without any column name the header is not shown.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    result = Table(
        title=Text(title, "bold") if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
        show_header=any(columns),
    )
    for number, column in enumerate(columns):
        is_left = number == 0 or column in left
        result.add_column(Text(column), justify="left" if is_left else "right", overflow="fold")
    return result


def clock_time(seconds: float) -> str:
    """A duration as H:MM:SS, such as `0:04:05`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60:,}:{minutes % 60:02}:{rest:02}"


class Progress:
    """Reports how far a job is: a bar on a terminal; in a log or pipe a line every minute, at the end of each stage,
    and at the end.

    `total` counts whatever `unit` names.
    """

    def __init__(self, console: "Console", total: float, unit: str = "steps") -> None:
        self._console, self._total, self._unit = console, total, unit
        self._done = 0.0
        self._start = self._logged = time.monotonic()
        self._bar: Bar | None = None
        self._unprinted = ""

    @contextmanager
    def shown(self) -> Iterator["Progress"]:
        """Shows the bar while the block runs; in a log, `update` prints, and so does the end of the block."""
        if not self._console.is_terminal or not self._total:
            yield self
            self._print(self._unprinted)
            return
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        text = TextColumn("{task.description}", markup=False)
        columns = (text, BarColumn(), TextColumn("{task.percentage:.0f} %  ETA"), TimeRemainingColumn())
        with Bar(*columns, console=self._console, transient=True) as self._bar:
            self._task = self._bar.add_task("", total=self._total)
            yield self

    @property
    def seconds(self) -> float:
        """Since the start, never 0, so that it can divide."""
        return max(time.monotonic() - self._start, 1e-9)

    def advance(self, count: float, label: str, is_stage_end: bool = False) -> None:
        """`count` more are done; `label` says what is being done. `is_stage_end`: see `update`."""
        done = self._done + count
        line = f"{label}: {done:,.0f} of {self._total:,.0f} {self._unit} ({done / self.seconds:,.1f}/s)"
        self.update(done, line, is_stage_end)

    def update(self, done: float, line: str, is_stage_end: bool = False) -> None:
        """`done` of `total` are done in all; `line` is the text beside the bar, or in the log. `is_stage_end`: a file
        or shard is complete, so that a log gets the line now."""
        self._done, self._unprinted = done, line
        if self._bar is not None:
            self._bar.update(self._task, completed=done, description=line)
        elif is_stage_end or time.monotonic() - self._logged >= _LOG_SECONDS:
            self._print(line)

    def _print(self, line: str) -> None:
        if line:
            self._logged, self._unprinted = time.monotonic(), ""
            self._console.print(f"{line}{self._eta()}", highlight=False, markup=False, soft_wrap=True)

    def _eta(self) -> str:
        if not self._done or self._done >= self._total:
            return ""
        return f", ETA {clock_time(self.seconds * (self._total - self._done) / self._done)}"
