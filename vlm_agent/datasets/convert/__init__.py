"""Conversion: the files of a source become shards, and nothing is lost without being counted.

Each input file becomes a shard and an entry, each written whole or not at all; the manifest comes last. So a run can be
killed at any moment, and the same command goes on from there and ends with the same bytes. A record is quarantined
when it is damaged or its episode is not whole (the rule is in `grouping`); an episode is left out when the split files
do not name it, put it into two splits, or the mixture does not hold it.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.convert.finish import (
    check_all_there,
    entries_of,
    had_by,
    note_duplicates,
    read_had,
    write_results,
)
from vlm_agent.datasets.convert.output_folder import held
from vlm_agent.datasets.convert.plan import Options, Plan, check_output, hold_to_plan, read_plan
from vlm_agent.datasets.convert.sources import SOURCES, Input, find
from vlm_agent.datasets.convert.summary import ConversionSummary
from vlm_agent.datasets.convert.watch import Watch, check_fraction
from vlm_agent.datasets.convert.workers import Job, Setup, convert_jobs
from vlm_agent.datasets.images import ScreenFormat
from vlm_agent.datasets.shards import MANIFEST
from vlm_agent.datasets.splits import read_splits

__all__ = ["SOURCES", "ConversionSummary", "convert", "finish"]


def convert(
    source: str,
    inputs: Sequence[Path],
    output: Path,
    splits: Sequence[Path] = (),
    console: Console | None = None,
    *,
    mixture: Mapping[str, float] | None = None,
    screens: ScreenFormat | None = None,
    workers: int | None = None,
    max_bad_fraction: float | None = None,
    part: tuple[int, int] | None = None,
) -> ConversionSummary:
    """Writes the episodes of `inputs` (files, or folders searched for the source's files) as shards to `output`.

    With `splits`, each episode gets the split that the files say; without, the one that the source says, `train` where
    it says none. `mixture` is subset → share of its episodes, `screens` how pictures are stored (PNG where None),
    `workers` the number of processes (one a core where None). With `part` (index, count), only every count-th input is
    converted, and `finish` comes when all parts are done. Progress and the table at the end go to `console` (stderr if
    None). An `output` that holds the same conversion, finished or not, is taken up where it stands.

    Raises DatasetError, before anything is written, for an unknown source, inputs without data, a file that does not
    tell its subset, two files that would become the same shard, a bad split file, or an output that holds anything
    else; and later when more than `max_bad_fraction` of the steps are bad, or files cannot be read or written.
    """
    console = Console(stderr=True) if console is None else console
    plan = Plan(
        source, Options(tuple(splits), dict(mixture or {}), screens or ScreenFormat()), tuple(find(source, inputs))
    )
    _check_part(part)
    run = _Run(plan, output, console, workers, max_bad_fraction)
    check_output(output)
    with held(output, shared=part is not None):
        hold_to_plan(output, plan)
        if part is not None:
            summary = run.convert_part(*part)
        else:
            run.convert(plan.inputs)
            summary = run.finish()
    summary.print(console)
    return summary


def finish(
    output: Path, console: Console | None = None, workers: int | None = None, max_bad_fraction: float | None = None
) -> ConversionSummary:
    """Ends a conversion whose parts are all done: verifies the shards, settles episodes that several files hold, and
    writes quarantine and manifest.

    Raises DatasetError where there is no conversion, inputs are not converted yet, inputs or split files have changed,
    a run is still going on, or a shard is not what its entry says.
    """
    console = Console(stderr=True) if console is None else console
    plan = read_plan(output)
    run = _Run(plan, output, console, workers, max_bad_fraction)
    with held(output):
        hold_to_plan(output, plan)
        summary = run.finish()
    summary.print(console)
    return summary


class _Run:
    def __init__(self, plan: Plan, output: Path, console: Console, workers: int | None, max_bad: float | None):
        splits = read_splits(plan.options.splits) if plan.options.splits else None
        self._setup = Setup(plan.source, output, plan.options, splits)
        self._plan, self._output, self._console, self._max_bad = plan, output, console, max_bad
        self._workers = len(os.sched_getaffinity(0)) if workers is None else workers

    def convert(self, inputs: Sequence[Input]) -> None:
        """Those of the inputs that are not done yet."""
        had, entries = read_had(self._output), entries_of(self._plan, self._output)
        jobs = [Job(given, had_by(had, given.shard)) for given in inputs if entries[given.shard] is None]
        if not jobs:
            return
        (self._output / MANIFEST).unlink(missing_ok=True)  # it means complete, and a shard is about to be made again
        size = sum(job.given.size() for job in jobs)
        done = [entry for entry in entries.values() if entry is not None]
        before = ConversionSummary.of(self._output, done)
        counts = before.total("steps_read"), before.quarantined
        watch = Watch(self._console, len(jobs), size, len(inputs) - len(jobs), self._max_bad, counts)
        with watch.shown():
            convert_jobs(self._setup, jobs, self._workers, watch)

    def convert_part(self, index: int, count: int) -> ConversionSummary:
        inputs = self._plan.inputs[index::count]
        self.convert(inputs)
        entries = entries_of(self._plan, self._output)
        waiting = sum(entry is None for entry in entries.values())
        return self._checked(ConversionSummary.of(self._output, [entries[given.shard] for given in inputs], waiting))

    def finish(self) -> ConversionSummary:
        while True:
            had = read_had(self._output)
            if again := [given for given in self._plan.inputs if given.shard in had]:
                self.convert(again)
            entries = entries_of(self._plan, self._output)
            check_all_there(self._plan, entries)
            if not note_duplicates(self._plan, self._output, entries):
                break
            self._console.print("Some episodes are in several files; the later files are read again without them.")
        self._checked(ConversionSummary.of(self._output, entries.values()))
        return write_results(self._plan, self._output, entries)

    def _checked(self, summary: ConversionSummary) -> ConversionSummary:
        check_fraction(summary.quarantined, summary.total("steps_read"), self._max_bad)
        return summary


def _check_part(part: tuple[int, int] | None) -> None:
    if part is not None and not 0 <= part[0] < part[1]:
        raise DatasetError(f"--shard-index {part[0]} of --shard-count {part[1]} does not exist; they count from 0")
