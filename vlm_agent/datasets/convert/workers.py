"""Inputs converted one after the other here, or by several processes at once.

A process converts whole inputs, so that no pixel ever travels between processes. Own processes and not a pool of the
standard library: they have to end at once with their parent, however that dies, and a worker that is killed (memory)
has to be noticed.
"""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from pathlib import Path

from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.convert.memory import keep_freed_memory, leave_pandas_out
from vlm_agent.datasets.convert.one_input import Conversion
from vlm_agent.datasets.convert.output_folder import NO_ROOM
from vlm_agent.datasets.convert.plan import Options
from vlm_agent.datasets.convert.sources import Input
from vlm_agent.datasets.convert.summary import Entry
from vlm_agent.datasets.convert.watch import TICK_SECONDS, Watch
from vlm_agent.datasets.splits import Splits


@dataclass(frozen=True)
class Job:
    """An input, and the ids of the episodes that earlier inputs have given."""

    given: Input
    had: frozenset[str]


@dataclass(frozen=True)
class Setup:
    """What `Conversion` is made of; a worker gets it once."""

    source: str
    output: Path
    options: Options
    splits: Splits | None


def convert_jobs(setup: Setup, jobs: Sequence[Job], workers: int, watch: Watch) -> list[Entry]:
    """The entries of all jobs, in no order.

    An input whose files cannot be read does not stop the others. Raises DatasetError for it when they are done, at once
    when a worker died, and OSError at once when nothing can be written any more.
    """
    run = _in_this_process if min(workers, len(jobs)) <= 1 else _in_processes
    entries, failures = [], []
    for result in run(setup, jobs, workers, watch):
        if isinstance(result, Entry):
            entries.append(result)
            watch.file_done()
        elif result.number in NO_ROOM:
            raise OSError(result.number, os.strerror(result.number))
        else:
            failures.append(result)
    if failures:
        raise DatasetError(
            "\n".join(map(str, failures)) + f"\n{len(failures)} input(s) could not be read; the others are converted, "
            "and the same command tries these again"
        )
    return entries


@dataclass(frozen=True)
class _Failure:
    """An OSError that an input met: with which file, and its errno."""

    where: str
    number: int

    def __str__(self) -> str:
        return f"{self.where}: {os.strerror(self.number)}"


def _attempt(conversion: Conversion, job: Job, report) -> Entry | _Failure:
    try:
        return conversion.convert(job.given, job.had, report)
    except OSError as error:
        if error.errno is None:
            raise
        return _Failure(str(job.given.files[0] if error.filename is None else error.filename), error.errno)


def _in_this_process(setup: Setup, jobs: Sequence[Job], workers: int, watch: Watch) -> Iterator[Entry | _Failure]:
    keep_freed_memory()
    conversion = Conversion(setup.source, setup.output, setup.options, setup.splits)
    for job in jobs:
        yield _attempt(conversion, job, watch.report)


@dataclass
class _Worker:
    process: object
    channel: connection.Connection
    job: Job | None = None

    def hand(self, job: Job | None) -> None:
        self.job = job
        if job is not None:
            self.channel.send(job)

    def result(self) -> Entry | _Failure:
        try:
            return self.channel.recv()
        except EOFError:
            self.process.join()
            raise DatasetError(
                f"the worker that converted {self.job.given.name} died (exit code {self.process.exitcode}; -9 is what "
                "a machine out of memory does); the same command goes on from here, --workers can be fewer"
            ) from None


def _in_processes(setup: Setup, jobs: Sequence[Job], workers: int, watch: Watch) -> Iterator[Entry | _Failure]:
    context = get_context("spawn")  # forking a process that has started threads (a progress bar) may hang
    counts = min(workers, len(jobs))
    # Each worker has three numbers of its own: a lock on common ones would stay locked when its holder is killed.
    counters = context.RawArray("q", 3 * counts)
    waiting = iter(sorted(jobs, key=lambda job: -job.given.size()))  # the largest last would leave cores idle
    hands = [_start(context, setup, counters, 3 * index) for index in range(counts)]
    try:
        for worker in hands:
            worker.hand(next(waiting, None))
        while busy := {worker.channel: worker for worker in hands if worker.job is not None}:
            for ready in connection.wait(list(busy), timeout=TICK_SECONDS):
                yield busy[ready].result()
                busy[ready].hand(next(waiting, None))
            watch.set(*(sum(counters[kind::3]) for kind in range(3)))
            watch.tick()
    finally:
        for worker in hands:
            worker.process.terminate()
        for worker in hands:
            worker.process.join()


def _start(context, setup: Setup, counters, first: int) -> _Worker:
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there, setup, counters, first), daemon=True)
    process.start()
    there.close()
    return _Worker(process, here)


def _work(channel: connection.Connection, setup: Setup, counters, first: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    leave_pandas_out()
    keep_freed_memory()
    conversion = Conversion(setup.source, setup.output, setup.options, setup.splits)

    def report(*counts: int) -> None:
        for index, count in enumerate(counts, first):
            counters[index] += count

    while True:
        channel.send(_attempt(conversion, channel.recv(), report))


def _end_with_parent() -> None:
    parent_process().join()
    os._exit(1)
