"""Counts of a conversion: for each input, in total, and as a table for the terminal.

Steps read = written + quarantined + excluded, for each input and in total.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vlm_agent.datasets.convert.grouping import DISCARDED, FAULTS
from vlm_agent.datasets.sources import Exclusion
from vlm_agent.datasets.sources.checks import EDGE_TOLERANCE
from vlm_agent.files.console import new_table

QUARANTINE = "quarantine.jsonl"

COUNTS = ("steps_read", "steps_written", "steps_quarantined", "steps_left_out", "episodes_written")
_SHOWN_BAD_RECORDS = 5

_EXCLUDED = {
    "in_no_split": "excluded: no split file contains them",
    "in_two_splits": "excluded: the split files assign them to two splits",
    "outside_mixture": "excluded from train by the mixture",
}


@dataclass
class FileSummary:
    """Counts of one input. `shard` is None if no episode of it was written.

    `cut_short`: reading ended at damage, so the number of records after it is unknown. `size_cut_short`: bytes of the
    files in which it did. `episodes_left_out` counts episodes by reason: one of `_EXCLUDED`, or of the source;
    `episode_faults` by fault (`grouping.FAULTS`). `exclusions` counts the steps, among `steps_left_out`, that the
    source excludes, by reason. `points_moved` counts points of written steps that were a little outside the screen
    (`sources.checks.EDGE_TOLERANCE`).
    """

    name: str
    size: int = 0
    sha256: str = ""
    subset: str = ""
    shard: str | None = None
    shard_size: int = 0
    steps_written: int = 0
    steps_quarantined: int = 0
    steps_left_out: int = 0
    episodes_written: int = 0
    points_moved: int = 0
    cut_short: bool = False
    size_cut_short: int = 0
    exclusions: dict[str, int] = field(default_factory=dict)
    episodes_left_out: dict[str, int] = field(default_factory=dict)
    episode_faults: dict[str, int] = field(default_factory=dict)

    @property
    def steps_read(self) -> int:
        return self.steps_written + self.steps_quarantined + self.steps_left_out

    def exclude(self, exclusion: Exclusion) -> None:
        """Counts the steps and episodes of an exclusion."""
        self.steps_left_out += exclusion.steps
        for counts, number in ((self.exclusions, exclusion.steps), (self.episodes_left_out, exclusion.episodes)):
            if number:
                counts[exclusion.reason] = counts.get(exclusion.reason, 0) + number


@dataclass
class QuarantinedRecord:
    """A line of the quarantine: a record of a file, from 0, its first byte, why it cannot be used, and its number of
    steps."""

    file: str
    record: int
    offset: int
    reason: str
    steps: int = 1


@dataclass
class Entry:
    """A converted input: counts, quarantined records, and the ids of episodes that an earlier input contains, too."""

    summary: FileSummary
    duplicate_ids: list[str]
    quarantine: list[QuarantinedRecord]


@dataclass
class ConversionSummary:
    """Counts of a run. `waiting` is the number of inputs of the conversion that are not converted yet. `is_part`: of a
    task of a job array, which `--finish` must follow."""

    output: Path
    files: list[FileSummary]
    first_bad: list[QuarantinedRecord]
    waiting: int = 0
    is_part: bool = False

    @classmethod
    def of(cls, output: Path, entries: Iterable[Entry], waiting: int = 0, is_part: bool = False) -> "ConversionSummary":
        entries = list(entries)
        # What is wrong with a record comes before the good records that are left out with it.
        bad = sorted(chain(*(entry.quarantine for entry in entries)), key=lambda line: DISCARDED in line.reason)
        return cls(output, [entry.summary for entry in entries], bad[:_SHOWN_BAD_RECORDS], waiting, is_part)

    def total(self, count: str) -> int:
        """`count` is one of `COUNTS`, `points_moved`, `size` or `size_cut_short`."""
        return sum(getattr(file, count) for file in self.files)

    def totals_by(self, kind: str) -> dict[str, int]:
        """`kind` is exclusions, episodes_left_out or episode_faults."""
        return dict(sorted(sum((Counter(getattr(file, kind)) for file in self.files), Counter()).items()))

    @property
    def quarantined(self) -> int:
        """The number of steps of unusable records. If it is not 0, the exit status should not be 0 either."""
        return self.total("steps_quarantined")

    @property
    def is_empty(self) -> bool:
        """Whether a whole conversion wrote no episode: no command can use its result."""
        return not self.is_part and not self.total("episodes_written")

    @property
    def cut_short(self) -> int:
        return sum(file.cut_short for file in self.files)

    def print(self, console: Console) -> None:
        console.print(f"Converted {len(self.files)} file(s) to {self.output}", highlight=False, soft_wrap=True)
        console.print(self._table())
        for line in self._remarks():
            console.print(Text(line), soft_wrap=True)

    def _table(self) -> Table:
        table = new_table("", ("subset", "steps read", "written", "quarantined", "excluded", "episodes"))
        for subset in sorted({file.subset for file in self.files}):
            files = [file for file in self.files if file.subset == subset]
            table.add_row(subset, *(f"{sum(getattr(file, name) for file in files):,}" for name in COUNTS))
        table.add_section()
        table.add_row("all", *(f"{self.total(name):,}" for name in COUNTS))
        return table

    def _remarks(self) -> Iterable[str]:
        for bad in self.first_bad:
            yield f"{bad.file}: record {bad.record} (at byte {bad.offset}): {bad.reason}"
        if self.quarantined:
            location = f"{QUARANTINE} when the conversion is finished" if self.is_part else self.output / QUARANTINE
            yield f"{self.quarantined:,} step(s) quarantined; see {location}"
        if self.cut_short:
            names = ", ".join(file.name for file in self.files if file.cut_short)
            yield (
                f"{self.cut_short:,} file(s) are damaged; the records after the damage are not counted. To convert "
                f"better copies, add --update: {names}"
            )
        if not self.is_part:
            yield from missing_files([file.name for file in self.files])
        yield from self._changes()
        if self.files and not self.total("episodes_written"):
            yield "No episode was written: check the counts above and, with --splits, the ids in the split files."
        if self.is_part:
            waiting = f"{self.waiting:,} file(s)" if self.waiting else "No file"
            yield f"{waiting} of other tasks to convert; then run: vlm-agent convert --finish --output {self.output}"

    def _changes(self) -> Iterable[str]:
        """What was moved, excluded or discarded."""
        if moved := self.total("points_moved"):
            yield f"{moved:,} point(s) outside the screen by at most {EDGE_TOLERANCE} of it were moved to its edge"
        for reason, count in self.totals_by("exclusions").items():
            yield f"{count:,} step(s) excluded: {reason}"
        for words, kind in ((_EXCLUDED, "episodes_left_out"), (FAULTS, "episode_faults")):
            for name, count in self.totals_by(kind).items():
                yield f"{count:,} episode(s) {words.get(name, f'excluded: {name}')}"


NUMBERED = re.compile(r"(.+)-(\d+)-of-(\d+)(\.gz)?")


def missing_files(names: Iterable[str]) -> Iterator[str]:
    """A line for each set of files NAME-00003-of-00064 that is not complete: a download may have stopped."""
    found: dict[tuple[str, str, str], set[int]] = {}
    for name in names:
        if match := NUMBERED.fullmatch(name):
            prefix, number, count, ending = match.groups("")
            found.setdefault((prefix, count, ending), set()).add(int(number))
    for (prefix, count, ending), numbers in sorted(found.items()):
        total = int(count)
        # A number at or above the total is of a file that was named by hand, and is no other file.
        if missing := total - sum(number < total for number in numbers):
            first = next(number for number in range(total) if number not in numbers)
            example, all_of_them = (f"{prefix}-{one}-of-{count}{ending}" for one in (f"{first:0{len(count)}}", "*"))
            yield f"{missing:,} of the {total:,} files {all_of_them} are not in the input, {example} first"
