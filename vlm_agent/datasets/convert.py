"""Conversion: the files of a source become shards, and nothing is lost without being counted.

For steps, read = written + quarantined + left out, in each file and in all. A record is quarantined when it is damaged
or its episode is not whole; it has a line in `quarantine.jsonl`. An episode is left out when the split files do
not name it, or put it into two splits. A file that cannot be read at all counts as one bad record.
"""

import hashlib
import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

import vlm_agent
from vlm_agent.datasets import DatasetError, aitw, written_whole
from vlm_agent.datasets.aitw import BadRecord
from vlm_agent.datasets.shards import MANIFEST, ShardWriter, write_manifest
from vlm_agent.datasets.splits import SPLITS, Splits, read_splits
from vlm_agent.episodes import Episode

QUARANTINE = "quarantine.jsonl"

_COUNTS = ("steps_read", "steps_written", "steps_quarantined", "steps_left_out", "episodes_written")
_SHOWN_BAD_RECORDS = 5


@dataclass(frozen=True)
class Source:
    """How a kind of data set is read: which files of a folder are its own, and what is in one of them."""

    is_data: Callable[[Path], bool]
    subset_of: Callable[[Path], str]
    read: Callable[[Path, Container[str]], Iterator[Episode | BadRecord]]
    example_name: str


SOURCES = {
    "aitw": Source(
        is_data=lambda path: re.search(r"(-\d+-of-\d+|\.tfrecords?)(\.gz)?$", path.name) is not None,
        subset_of=aitw.subset_of,
        read=lambda path, known: aitw.read_episodes(path, known=known),
        example_name="google_apps-00000-of-00001",
    )
}


@dataclass
class FileSummary:
    """What became of one input file; `shard` is None where no episode of it was written."""

    name: str
    size: int
    sha256: str
    subset: str
    shard: str | None = None
    steps_written: int = 0
    steps_quarantined: int = 0
    steps_left_out: int = 0
    episodes_written: int = 0

    @property
    def steps_read(self) -> int:
        return self.steps_written + self.steps_quarantined + self.steps_left_out


@dataclass
class ConversionSummary:
    """What became of all input files."""

    output: Path
    files: list[FileSummary] = field(default_factory=list)
    first_bad: list[BadRecord] = field(default_factory=list)
    episodes_in_two_splits: int = 0

    def total(self, count: str) -> int:
        """`count` is one of steps_read, steps_written, steps_quarantined, steps_left_out, episodes_written."""
        return sum(getattr(file, count) for file in self.files)

    @property
    def quarantined(self) -> int:
        """How many records could not be used; a run with any should not exit with status 0."""
        return self.total("steps_quarantined")

    def print(self, console: Console) -> None:
        console.print(f"Converted {len(self.files)} file(s) to {self.output}", highlight=False, soft_wrap=True)
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column("subset")
        for name in ("steps read", "written", "quarantined", "left out", "episodes written"):
            table.add_column(name, justify="right")
        for subset in sorted({file.subset for file in self.files}):
            files = [file for file in self.files if file.subset == subset]
            table.add_row(subset, *(f"{sum(getattr(file, name) for file in files):,}" for name in _COUNTS))
        table.add_section()
        table.add_row("all", *(f"{self.total(name):,}" for name in _COUNTS))
        console.print(table)
        for bad in self.first_bad:
            console.print(Text(str(bad), style="yellow"), soft_wrap=True)
        if self.quarantined:
            console.print(f"{self.quarantined:,} record(s) quarantined; all are in {self.output / QUARANTINE}")
        if self.episodes_in_two_splits:
            console.print(
                f"{self.episodes_in_two_splits:,} episode(s) left out because the split files put them into two"
            )
        if not self.total("episodes_written"):
            console.print("No episode was written: look at the counts above and, with --splits, at the ids it names.")


def convert(
    source: str, inputs: Sequence[Path], output: Path, splits: Sequence[Path] = (), console: Console | None = None
) -> ConversionSummary:
    """Writes the episodes of `inputs` (files, or folders searched for the source's files) as shards to `output`.

    With `splits`, each episode gets the split that the files say; those they do not name, or put into two splits, are
    left out. Without, every episode is `train`. One shard a file, `<subset>/<file name>.parquet`. An episode whose id
    was already written is quarantined. Progress, on a terminal, and the table at the end go to `console` (stderr if
    None).

    Raises DatasetError, before anything is written, for an unknown source, inputs without data, a file that does not
    tell its subset, two files that would become the same shard, a bad split file, or an output that is not empty.
    """
    if source not in SOURCES:
        raise DatasetError(f"source {source!r} is unknown; there are {', '.join(SOURCES)}")
    kind = SOURCES[source]
    shards = _plan(kind, _find(kind, inputs))
    known = read_splits(splits) if splits else None
    _claim(output)
    summary = ConversionSummary(output)
    console = Console(stderr=True) if console is None else console
    with (
        written_whole(output / QUARANTINE) as temporary,
        temporary.open("w", encoding="utf-8") as quarantine,
        _progress(console) as progress,
    ):
        task = progress.add_task("converting", total=len(shards), steps=0)
        conversion = _Conversion(kind, output, known, quarantine, summary)
        for path, shard in shards.items():
            for steps in conversion.convert_file(path, shard):
                progress.update(task, steps=steps)
            progress.advance(task)
    write_manifest(output, _manifest(source, splits, summary))
    summary.print(console)
    return summary


def _find(kind: Source, inputs: Sequence[Path]) -> list[Path]:
    """The files to read, each once: those named, and of a folder those that look like the source's, sorted."""
    found: dict[Path, Path] = {}
    for path in inputs:
        files = [path]
        if path.is_dir():
            inside = (file for file in sorted(path.rglob("*")) if file.is_file() and not file.name.startswith("."))
            files = [file for file in inside if kind.is_data(file)]
            if not files:
                raise DatasetError(f"the folder {path} holds no file of this source (named like {kind.example_name})")
        elif not path.exists():
            raise DatasetError(f"{path} does not exist")
        for file in files:
            found.setdefault(file.resolve(), file)
    if not found:
        raise DatasetError("no input was given")
    return list(found.values())


def _plan(kind: Source, paths: Iterable[Path]) -> dict[Path, str]:
    """Which shard each file becomes, as a path within the output."""
    owners: dict[str, Path] = {}
    for path in paths:
        shard = f"{kind.subset_of(path)}/{path.name}.parquet"
        if shard in owners:
            raise DatasetError(f"{owners[shard]} and {path} would both become {shard}; rename one of them")
        owners[shard] = path
    return {path: shard for shard, path in owners.items()}


def _claim(output: Path) -> None:
    if output.exists() and not output.is_dir():
        raise DatasetError(f"{output} is a file; the shards need a folder")
    if output.is_dir() and any(output.iterdir()):
        state = (
            "a complete conversion" if (output / MANIFEST).exists() else "something, or a conversion that was stopped"
        )
        raise DatasetError(f"{output} already holds {state}; give an empty folder or delete it first")


@dataclass
class _Conversion:
    kind: Source
    output: Path
    splits: Splits | None
    quarantine: TextIO
    summary: ConversionSummary
    written: set[str] = field(default_factory=set)
    steps: int = 0

    def convert_file(self, path: Path, shard: str) -> Iterator[int]:
        """Yields, after each episode or bad record, how many steps have been read in all."""
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        counts = FileSummary(path.name, path.stat().st_size, sha256, self.kind.subset_of(path))
        self.summary.files.append(counts)
        with ShardWriter(self.output / shard) as writer:
            for item in self.kind.read(path, self.written):
                if isinstance(item, BadRecord):
                    self._set_aside(item, counts)
                else:
                    self._keep(item, counts, writer)
                self.steps += 1 if isinstance(item, BadRecord) else len(item)
                yield self.steps
        if counts.episodes_written:
            counts.shard = shard

    def _keep(self, episode: Episode, counts: FileSummary, writer: ShardWriter) -> None:
        split = SPLITS[0] if self.splits is None else self.splits.split_of(episode.id)
        if split is None:
            self.summary.episodes_in_two_splits += episode.id in self.splits.ambiguous
            counts.steps_left_out += len(episode)
            return
        writer.write(episode, split)
        self.written.add(episode.id)
        counts.steps_written += len(episode)
        counts.episodes_written += 1

    def _set_aside(self, bad: BadRecord, counts: FileSummary) -> None:
        counts.steps_quarantined += 1
        if len(self.summary.first_bad) < _SHOWN_BAD_RECORDS:
            self.summary.first_bad.append(bad)
        line = {"file": str(bad.file), "record": bad.record, "offset": bad.offset, "reason": bad.reason}
        self.quarantine.write(json.dumps(line, ensure_ascii=False) + "\n")


def _manifest(source: str, splits: Sequence[Path], summary: ConversionSummary) -> dict:
    named = [{"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in splits]
    return {
        "vlm_agent_version": vlm_agent.__version__,
        "source": source,
        "options": {"splits": named, "image_format": "png"},
        **{name: summary.total(name) for name in _COUNTS},
        "episodes_in_two_splits": summary.episodes_in_two_splits,
        "files": [asdict(file) | {"steps_read": file.steps_read} for file in summary.files],
    }


class _Rate(ProgressColumn):
    """Steps so far and steps a second."""

    def render(self, task: Task) -> Text:
        steps = task.fields["steps"]
        return Text(f"{steps:,} steps, {steps / task.elapsed if task.elapsed else 0:,.0f}/s")


def _progress(console: Console) -> Progress:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files"),
    )
    return Progress(*columns, _Rate(), console=console, transient=True, disable=not console.is_terminal)
