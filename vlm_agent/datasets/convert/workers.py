"""Conversion of inputs in this process, or in several worker processes; its progress, and the limit on bad steps.

A worker converts complete inputs, so pixels never pass between processes. A pool of the standard library is not used:
workers must end as soon as their parent dies, even if it is killed, and a worker that is killed for memory must be
detected.

Two settings make a converting process faster: it keeps freed memory, and it does not import pandas.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from multiprocessing.process import BaseProcess

from rich.console import Console
from rich.filesize import decimal

from vlm_agent.datasets.convert.folder import first_lines
from vlm_agent.datasets.convert.one_input import Conversion, Report
from vlm_agent.datasets.convert.summary import Entry
from vlm_agent.datasets.sources import Input
from vlm_agent.errors import DatasetError
from vlm_agent.files.console import Progress
from vlm_agent.files.imports import start_program
from vlm_agent.files.jobs import NO_ROOM

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


def check_fraction(bad: int, total: int, allowed: float | None, are_bad: str = "steps read are bad") -> None:
    """Raises DatasetError if more than the `allowed` fraction is bad. None allows any."""
    if allowed is not None and bad > allowed * total:
        raise DatasetError(
            f"{bad:,} of {total:,} {are_bad}, more than --max-bad-fraction {allowed:g} allows; run the same "
            "command with a larger fraction to resume; quarantine.jsonl then lists them"
        )


@dataclass(frozen=True)
class Job:
    """An input, and the ids of its episodes that an earlier input contains, too."""

    input_: Input
    duplicate_ids: frozenset[str]


def convert_jobs(conversion: Conversion, jobs: Sequence[Job], workers: int, watch: Watch) -> None:
    """Converts the inputs of all jobs, in any order.

    An input whose files cannot be read does not stop the others: DatasetError is raised after they are converted.
    Raises DatasetError at once if a worker dies, and OSError at once if nothing can be written any more (`NO_ROOM`).
    """
    run = _in_this_process if min(workers, len(jobs)) <= 1 else _in_processes
    failures = []
    for result in run(conversion, jobs, workers, watch):
        if isinstance(result, Entry):
            watch.file_done()
        elif result.number is not None and result.number in NO_ROOM:
            raise OSError(result.number, os.strerror(result.number))
        else:
            failures.append(result.reason)
    if failures:
        raise DatasetError(
            "\n".join(first_lines(failures)) + f"\n{len(failures)} input(s) could not be converted; the others are. "
            "Run the same command again to retry"
        )


@dataclass(frozen=True)
class _Failure:
    """Why an input could not be converted, and the errno of an OSError."""

    reason: str
    number: int | None = None


def _attempt(conversion: Conversion, job: Job, report: Report) -> Entry | _Failure:
    try:
        return conversion.convert(job.input_, job.duplicate_ids, report)
    except OSError as error:
        if error.errno is None:
            raise
        where = job.input_.files[0] if error.filename is None else error.filename
        return _Failure(f"{where}: {os.strerror(error.errno)}", error.errno)
    except DatasetError as error:
        return _Failure(str(error))


def _in_this_process(
    conversion: Conversion, jobs: Sequence[Job], workers: int, watch: Watch
) -> Iterator[Entry | _Failure]:
    keep_freed_memory()
    for job in jobs:
        yield _attempt(conversion, job, watch.report)


@dataclass(frozen=True)
class _Worker:
    process: BaseProcess
    channel: connection.Connection

    def send(self, job: Job) -> None:
        """Raises DatasetError if the process died."""
        with self._alive(job):
            self.channel.send(job)

    def result(self, job: Job) -> Entry | _Failure:
        """The result of the job that was sent last. Raises DatasetError if the process died."""
        with self._alive(job):
            return self.channel.recv()

    @contextmanager
    def _alive(self, job: Job) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):  # a broken connection, or half of a result
            self.process.join()
            raise DatasetError(
                f"the worker that converted {job.input_.name} died ({_cause_of(self.process.exitcode)}); run the same "
                "command again to resume"
            ) from None


_TERMINATED = 128 + signal.SIGTERM
"""Exit status of a worker after the signal, as in a shell."""


def _cause_of(exit_code: int | None) -> str:
    if exit_code == _TERMINATED:
        exit_code = -signal.SIGTERM
    if exit_code is not None and exit_code < 0:
        return f"signal {-exit_code}; 9 often means out of memory: use fewer --workers"
    return f"exit code {exit_code}; its traceback is above"


def _in_processes(
    conversion: Conversion, jobs: Sequence[Job], workers: int, watch: Watch
) -> Iterator[Entry | _Failure]:
    context = get_context("spawn")  # a fork of a process with threads (a progress bar) may hang
    count = min(workers, len(jobs))
    # Three counters per worker: shared ones would need a lock, which stays locked if its holder is killed.
    counters = context.RawArray("q", 3 * count)
    waiting = iter(sorted(jobs, key=lambda job: -job.input_.size()))  # largest first, so that no core idles at the end
    busy: dict[connection.Connection, tuple[_Worker, Job]] = {}

    def count_done() -> None:
        watch.set(*(sum(counters[kind::3]) for kind in range(3)))

    def send_next(worker: _Worker) -> None:
        if (job := next(waiting, None)) is not None:
            worker.send(job)
            busy[worker.channel] = worker, job

    pool: list[_Worker] = []
    try:
        for index in range(count):
            here, there = context.Pipe()
            process = context.Process(target=_work, args=(there, conversion, counters, 3 * index), daemon=True)
            process.start()
            there.close()
            pool.append(_Worker(process, here))
        for worker in pool:
            send_next(worker)
        while busy:
            ready = connection.wait(list(busy), timeout=TICK_SECONDS)
            for channel in [channel for channel in busy if channel in ready]:
                worker, job = busy.pop(channel)
                result = worker.result(job)
                count_done()  # before the line that the caller prints for this file
                yield result
                send_next(worker)
            count_done()
            watch.tick()
    finally:
        for worker in pool:
            worker.process.terminate()
        for worker in pool:
            worker.process.join()


def _work(channel: connection.Connection, conversion: Conversion, counters: MutableSequence[int], first: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))  # removes the partial shard
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start_program()
    keep_freed_memory()

    def report(*counts: int) -> None:
        for index, count in enumerate(counts, first):
            counters[index] += count

    while True:
        channel.send(_attempt(conversion, channel.recv(), report))


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
    os._exit(1)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 1 << 25  # the maximum of glibc (mallopt(3))
_KEPT = 1 << 28


def keep_freed_memory() -> None:
    """Makes glibc keep freed blocks; does nothing with another C library.

    Otherwise the megabytes of each screen are returned to the kernel and faulted in again, which takes a fifth of the
    processor time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
