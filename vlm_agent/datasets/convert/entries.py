"""The entries of a conversion: which inputs are converted, from the same files, and which episodes are duplicates.

An entry has the time of the last change of its inputs as its own (`stamp`), exactly, whatever the clock says. A file is
hashed only if its status changed since. A copy to another disk changes the status of all files, 2.6 TB of AITW, so
hashing shows progress, and no file is hashed twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal

from vlm_agent.datasets.convert.one_input import last_change_ns, read_entry, stamp
from vlm_agent.datasets.convert.plan import WORK, Plan, job, read_plan
from vlm_agent.datasets.convert.summary import ConversionSummary, Entry
from vlm_agent.datasets.shards.dataset import MANIFEST
from vlm_agent.datasets.shards.schema import check_is_shard
from vlm_agent.datasets.sources import Input
from vlm_agent.errors import DatasetError
from vlm_agent.files import read_checked, sha256_of, write_checked
from vlm_agent.files.console import Progress
from vlm_agent.files.jobs import all_done, time_left
from vlm_agent.files.parquet import open_parquet

_DUPLICATES = "duplicates.json"
_REMEDY = "remove it and run the same command again"


def entries_of(plan: Plan, output: Path) -> dict[str, Entry | None]:
    """The entry of each input, by shard; None if it is not converted with these duplicates."""
    duplicates = read_duplicates(output)
    return {input_.shard: read_entry(output, input_, duplicates_in(duplicates, input_.shard)) for input_ in plan.inputs}


def without_changed(
    entries: Mapping[str, Entry | None],
    inputs: Sequence[Input],
    output: Path,
    console: Console,
    update: bool = False,
) -> dict[str, Entry | None]:
    """`entries`, by shard, with None for each of `inputs` whose files have changed since they were converted.

    Raises DatasetError for the first of them without `update`.
    """
    checked = dict(entries)
    converted = [(input_, entry) for input_ in inputs if (entry := entries[input_.shard]) is not None]
    touched = [(input_, entry) for input_, entry in converted if _is_touched(input_, output)]
    size, done = sum(input_.size() for input_, _ in touched), 0
    progress = Progress(console, size, "bytes")
    with progress.shown():
        for number, (input_, entry) in enumerate(touched, 1):
            changed_ns = last_change_ns(input_)
            if sha256_of(input_.files) == entry.summary.sha256:
                stamp(job(output).entry_path(input_.shard), changed_ns)
            elif update:
                checked[input_.shard] = None
            else:
                raise DatasetError(
                    f"{input_.files[0]} has changed since it was converted; restore the old file, or add --update to "
                    "convert changed files again"
                )
            done += input_.size()
            line = f"checked {number:,} of {len(touched):,} files that were copied or changed"
            progress.update(done, f"{line}, {decimal(done)} of {decimal(size)}")
    return checked


def _is_touched(input_: Input, output: Path) -> bool:
    return job(output).entry_path(input_.shard).stat().st_mtime_ns != last_change_ns(input_)


def complete_entries(plan: Plan, output: Path, console: Console) -> dict[str, Entry]:
    """The entry of each input, by shard. Raises DatasetError if inputs are not converted yet, or changed since."""
    entries = without_changed(entries_of(plan, output), plan.inputs, output, console)
    all_done({input_.name: entries[input_.shard] for input_ in plan.inputs}, "converted", "inputs")
    return {shard: entry for shard, entry in entries.items() if entry is not None}


def forget_duplicates(output: Path) -> None:
    """Another content of an input may lack an episode that a later input was converted without: `finish` compares the
    inputs again."""
    (output / WORK / _DUPLICATES).unlink(missing_ok=True)


def read_duplicates(output: Path) -> dict[str, list[str]]:
    """Shard → ids of its episodes that an earlier input contains, too. The first input keeps such an episode."""
    path = output / WORK / _DUPLICATES
    remedy = "remove it, and the duplicates are found again"
    return read_checked(path, remedy, dict[str, list[str]]) if path.is_file() else {}


def duplicates_in(duplicates: dict[str, list[str]], shard: str) -> frozenset[str]:
    return frozenset(duplicates.get(shard, ()))


def note_duplicates(plan: Plan, output: Path, entries: dict[str, Entry], console: Console) -> bool:
    """Records episodes that several shards contain; returns whether any of them is new. Opens every shard.

    The first shard in the order of the plan keeps the episode; the others must be converted again without it.

    Raises DatasetError for a shard that cannot be read or does not match its entry.
    """
    duplicates = read_duplicates(output)
    owners: dict[str, str] = {}
    are_new = False
    progress = Progress(console, len(plan.inputs), "shards")
    with progress.shown():
        for number, input_ in enumerate(plan.inputs, 1):
            for episode_id in _ids(output, entries[input_.shard]):
                if owners.setdefault(episode_id, input_.shard) != input_.shard:
                    duplicates.setdefault(input_.shard, []).append(episode_id)
                    are_new = True
            progress.update(number, f"checked {number:,}/{len(plan.inputs):,} shards")
    if are_new:
        write_checked(output / WORK / _DUPLICATES, duplicates)
    return are_new


def _ids(output: Path, entry: Entry) -> list[str]:
    summary = entry.summary
    if summary.shard is None:
        return []
    path = output / summary.shard
    with open_parquet(path, _REMEDY) as file:
        check_is_shard(path, file.schema, _REMEDY)
        ids = file.read(["episode_id"])["episode_id"].to_pylist()
    if len(ids) != summary.episodes_written:
        raise DatasetError(f"{path} holds {len(ids)} episodes where {summary.episodes_written} were written; {_REMEDY}")
    return ids


@dataclass(frozen=True)
class ConversionStatus:
    """`size`, `converted_size`: bytes of the inputs. `waiting`: names of inputs that are not converted, by their place
    in the list of inputs, from 0. `written`: when the newest entry was. `eta`: at the speed between the first and the
    newest entry; None with fewer than two."""

    summary: ConversionSummary
    files: int
    size: int
    converted_size: int
    waiting: dict[int, str]
    is_complete: bool
    written: datetime | None
    eta: timedelta | None

    @property
    def state(self) -> str:
        if self.is_complete:
            return "complete"
        return "in progress" if self.waiting else "all files are converted; run vlm-agent convert --finish"


def read_status(output: Path) -> ConversionStatus:
    """No input is read, so any machine that sees the folder can ask. Entries of killed and of running tasks count
    alike: the age of the newest one shows whether anything still runs.

    Raises DatasetError where the folder holds no conversion, or a file of it is damaged.
    """
    plan, sizes = read_plan(output), _sizes(output)
    entries = entries_of(plan, output)
    converted = [(input_, entry) for input_ in plan.inputs if (entry := entries[input_.shard]) is not None]
    stamps = sorted((_written(job(output).entry_path(input_.shard)), sizes[input_.shard]) for input_, _ in converted)
    size, converted_size = sum(sizes.values()), sum(size for _, size in stamps)
    return ConversionStatus(
        ConversionSummary.of(output, [entry for _, entry in converted]),
        len(plan.inputs),
        size,
        converted_size,
        {place: input_.name for place, input_ in enumerate(plan.inputs) if entries[input_.shard] is None},
        (output / MANIFEST).is_file(),
        datetime.fromtimestamp(stamps[-1][0], UTC) if stamps else None,
        time_left(stamps, size - converted_size),
    )


def _written(entry: Path) -> float:
    return entry.stat().st_ctime  # its mtime is that of its inputs


def _sizes(output: Path) -> dict[str, int]:
    """Bytes by shard, as the plan recorded them: the inputs may lie on another machine."""
    content = job(output).read_plan()
    with job(output).parsing_plan():
        return {shard: int(about["size"]) for shard, about in content["described"]["inputs"].items()}
