"""Conversion of a source's files into shards. Every record that is not converted is counted.

Each input becomes a shard and an entry, both written atomically; the manifest is written last. A run can therefore be
killed at any time: the same command resumes it and produces the same bytes. A record is quarantined if it is damaged or
its episode is incomplete (see `grouping`). An episode is excluded if no split file contains it, if the split files
assign it to two splits, or if it is a training episode outside the mixture.
"""

import json
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

import vlm_agent
from vlm_agent.datasets.convert.folder import (
    Options,
    Plan,
    complete_entries,
    duplicates_in,
    entries_of,
    forget_duplicates,
    job,
    note_duplicates,
    read_duplicates,
    read_plan,
    without_changed,
    write_or_verify_plan,
)
from vlm_agent.datasets.convert.one_input import Conversion
from vlm_agent.datasets.convert.summary import COUNTS, QUARANTINE, ConversionSummary, Entry
from vlm_agent.datasets.convert.workers import Job, Watch, check_fraction, convert_jobs
from vlm_agent.datasets.selection import check_subsets, read_splits
from vlm_agent.datasets.shards.dataset import read_manifest
from vlm_agent.datasets.shards.images import ScreenFormat
from vlm_agent.datasets.shards.schema import VERSION
from vlm_agent.datasets.shards.writer import write_manifest
from vlm_agent.datasets.sources import Input
from vlm_agent.datasets.sources.registry import find_inputs, find_source
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write, read_checked, write_checked
from vlm_agent.files.console import make_console
from vlm_agent.files.jobs import ArrayTask

GROUPS = "groups.json"
"""Groups in the folder of the shards; `evaluation/benchmark.py` says who reads them."""

__all__ = ["ConversionSummary", "convert", "finish"]


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
    task: ArrayTask | None = None,
    update: bool = False,
    groups: Mapping[str, Collection[str]] | None = None,
) -> ConversionSummary:
    """Writes the episodes of `inputs` (files, or folders searched for the source's files) as shards to `output`.

    `splits`: files with the split of each episode. Without them, the split of the source is used, or `train`.
    `mixture`: subset → share of its training episodes to keep. `screens`: the image format, PNG if None. `workers`: the
    number of processes, one per core if None. `max_bad_fraction`: the share of bad steps, and of bytes in files that
    cannot be read to their end, above which the run fails. `task`: one task of a job array; only its inputs are
    converted, and `finish` must follow after all tasks. `console`: for progress and the final table, stderr if None. If
    `output` contains the same conversion, it is resumed. `update`: its inputs may be other files than before, or more;
    those are converted. `groups`: name → episode ids, kept with the shards.

    Raises DatasetError before anything is written for an unknown source, inputs without data, a file whose subset
    cannot be determined, two files with the same shard, an invalid split file, and an output with other content or
    other `groups`. Raises it later if more than `max_bad_fraction` of the steps are bad or a file cannot be read or
    written.
    """
    console = make_console(stderr=True) if console is None else console
    options = Options(tuple(splits), dict(mixture or {}), screens or ScreenFormat())
    plan = _plan(source, inputs, options)
    run = _Run(plan, output, console, workers, max_bad_fraction, update)
    job(output).check_folder()
    with job(output).locked(shared=task is not None):
        write_or_verify_plan(output, plan, update)
        if groups is not None:  # written before the manifest, which means complete
            path, content = output / GROUPS, {name: list(ids) for name, ids in groups.items()}
            if path.exists() and read_checked(path, f"remove {path}") != content:
                raise DatasetError(f"{path} holds other groups; move it away to replace them")
            write_checked(path, content)
        if update:
            forget_duplicates(output)
        if task is not None:
            summary = run.convert_task(task)
        else:
            run.convert(plan.inputs)
            summary = run.finish()
    summary.print(console)
    return summary


def check_conversion(
    source: str, inputs: Sequence[Path], output: Path, options: Options, update: bool = False
) -> Sequence[Input]:
    """The inputs. Raises the errors that `convert` raises before anything is written."""
    plan = _plan(source, inputs, options)
    read_splits(options.splits)
    job(output).check_folder()
    if job(output).plan_path.exists() and not update:
        write_or_verify_plan(output, plan, moves=False)
    return plan.inputs


def _plan(source: str, inputs: Sequence[Path], options: Options) -> Plan:
    found = find_inputs(find_source(source), inputs)
    check_subsets(options.mixture, (input_.subset for input_ in found), "the mixture")
    return Plan(source, options, tuple(found))


def finish(
    output: Path, console: Console | None = None, workers: int | None = None, max_bad_fraction: float | None = None
) -> ConversionSummary:
    """Completes a conversion after all tasks of its job array.

    Compares the number of episodes of every shard with its entry, removes duplicate episodes (the first file keeps
    them) and writes quarantine and manifest. Screens are not read: `ShardDataset` verifies the checksum of each page.

    Raises DatasetError if the folder has no conversion, an input is not converted yet, an input or split file has
    changed, another run is active, or a shard does not match its entry.
    """
    console = make_console(stderr=True) if console is None else console
    plan = read_plan(output)
    try:
        for path in plan.options.splits:
            path.stat()
        run = _Run(plan, output, console, workers, max_bad_fraction)
        with job(output).locked():
            write_or_verify_plan(output, plan)
            summary = run.finish()
    except FileNotFoundError as error:
        raise DatasetError(
            f"{error.filename} is not there any more; run `vlm-agent convert` with --input, and --splits if there are "
            "split files, where they are now"
        ) from None
    summary.print(console)
    return summary


class _Run:
    def __init__(
        self,
        plan: Plan,
        output: Path,
        console: Console,
        workers: int | None,
        max_bad: float | None,
        update: bool = False,
    ) -> None:
        splits = read_splits(plan.options.splits) if plan.options.splits else None
        self._conversion = Conversion(find_source(plan.source), output, plan.options, splits)
        self._plan, self._output, self._console, self._max_bad = plan, output, console, max_bad
        self._update = update
        self._workers = len(os.sched_getaffinity(0)) if workers is None else workers

    def convert(self, inputs: Sequence[Input]) -> None:
        """Converts the inputs that have no entry yet."""
        duplicates = read_duplicates(self._output)
        entries = without_changed(
            entries_of(self._plan, self._output), inputs, self._output, self._console, self._update
        )
        jobs = [
            Job(input_, duplicates_in(duplicates, input_.shard)) for input_ in inputs if entries[input_.shard] is None
        ]
        if not jobs:
            return
        job(self._output).begin()
        size = sum(one.input_.size() for one in jobs)
        done = [entry for entry in entries.values() if entry is not None]
        before = ConversionSummary.of(self._output, done)
        counts = before.total("steps_read"), before.quarantined
        watch = Watch(self._console, len(jobs), size, len(inputs) - len(jobs), self._max_bad, counts)
        with watch.shown():
            convert_jobs(self._conversion, jobs, self._workers, watch)

    def convert_task(self, task: ArrayTask) -> ConversionSummary:
        inputs = task.items(self._plan.inputs)
        self.convert(inputs)
        entries = entries_of(self._plan, self._output)
        waiting = sum(entry is None for entry in entries.values())
        ready = [entry for input_ in inputs if (entry := entries[input_.shard]) is not None]
        return self._checked(ConversionSummary.of(self._output, ready, waiting, is_part=True))

    def finish(self) -> ConversionSummary:
        while True:
            duplicates = read_duplicates(self._output)
            if again := [input_ for input_ in self._plan.inputs if input_.shard in duplicates]:
                self.convert(again)
            entries = complete_entries(self._plan, self._output, self._console)
            if not note_duplicates(self._plan, self._output, entries, self._console):
                break
            self._console.print("Some episodes are in several files; converting the later files again without them.")
        self._checked(ConversionSummary.of(self._output, entries.values()))
        return write_results(self._plan, self._output, entries, self._console)

    def _checked(self, summary: ConversionSummary) -> ConversionSummary:
        check_fraction(summary.quarantined, summary.total("steps_read"), self._max_bad)
        first = next((file.name for file in summary.files if file.cut_short), "")
        are_bad = f"bytes are of files that cannot be read to their end, {first} first"
        check_fraction(summary.total("size_cut_short"), summary.total("size"), self._max_bad, are_bad)
        return summary


def write_results(plan: Plan, output: Path, entries: dict[str, Entry], console: Console) -> ConversionSummary:
    """Writes the quarantine, then the manifest, whose existence means that the conversion is complete."""
    ordered = [entries[input_.shard] for input_ in plan.inputs]
    with atomic_write(output / QUARANTINE) as part, part.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for entry in ordered:
            file.writelines(json.dumps(vars(line), ensure_ascii=False) + "\n" for line in entry.quarantine)
    summary = ConversionSummary.of(output, ordered)
    identity = plan.identity()
    manifest = {
        "vlm_agent_version": vlm_agent.__version__,
        "source": identity["source"],
        "options": identity["options"],
        **{name: summary.total(name) for name in COUNTS},
        "points_moved": summary.total("points_moved"),
        "exclusions": summary.totals_by("exclusions"),
        "episodes_left_out": summary.totals_by("episodes_left_out"),
        "episode_faults": summary.totals_by("episode_faults"),
        "files_cut_short": summary.cut_short,
        "files": [vars(file) | {"steps_read": file.steps_read} for file in summary.files],
    }
    with suppress(DatasetError):  # none yet, or a damaged one
        # Features, runs and evaluations refer to the digest of a manifest: it stays if another version of this program
        # finds nothing to convert.
        before = read_manifest(output)
        version = {"vlm_agent_version": before.get("vlm_agent_version")}
        if before == {"schema_version": VERSION} | manifest | version:
            manifest |= version
    write_manifest(output, manifest, console)
    return summary
