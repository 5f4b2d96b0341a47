"""The folder of a conversion: its plan, the entries of its inputs, episodes in several inputs, and its status.

The plan holds inputs and options; a second run with a different plan is refused (`files/jobs.py`). An entry has the
time of the last change of its inputs as its own (`stamp`), exactly, whatever the clock says. A file is hashed only if
its status changed since. A copy to another disk changes the status of all files, 2.6 TB of AITW, so hashing shows
progress, and no file is hashed twice.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal

from vlm_agent.datasets.convert.summary import NUMBERED, ConversionSummary, Entry, FileSummary, QuarantinedRecord
from vlm_agent.datasets.selection import MIXED_SPLIT, check_mixture
from vlm_agent.datasets.shards.dataset import MANIFEST, WORK_FOLDERS
from vlm_agent.datasets.shards.images import ScreenFormat
from vlm_agent.datasets.shards.schema import VERSION, check_is_shard
from vlm_agent.datasets.sources import Input
from vlm_agent.errors import DatasetError
from vlm_agent.files import read_checked, sha256_of, write_checked
from vlm_agent.files.console import Progress
from vlm_agent.files.jobs import ShardJob, all_done, time_left
from vlm_agent.files.parquet import open_parquet

WORK = WORK_FOLDERS["convert"]
_DUPLICATES = "duplicates.json"
_REMEDY = "remove it and run the same command again"
_REMEDY_OF_ENTRY = "remove it and run the same command again to convert its input again"


@dataclass(frozen=True)
class Options:
    """The options that affect the bytes of the output.

    `splits`: split files. `mixture`: subset → fraction of its training episodes to keep, 1 for subsets without an
    entry; episodes of other splits are kept.
    """

    splits: tuple[Path, ...] = ()
    mixture: Mapping[str, float] = field(default_factory=dict)
    screens: ScreenFormat = field(default_factory=ScreenFormat)

    def __post_init__(self) -> None:
        check_mixture(self.mixture)

    def content(self) -> dict:
        """The options as they are written to the manifest."""
        return {
            "splits": [{"name": path.name, "sha256": sha256_of([path])} for path in self.splits],
            "mixture": dict(sorted(self.mixture.items())),
            **({"mixture_of": MIXED_SPLIT} if self.mixture else {}),
            "screens": self.screens.described(),
        }


@dataclass(frozen=True)
class Plan:
    source: str
    options: Options
    inputs: tuple[Input, ...]

    def identity(self) -> dict:
        """The settings that two runs must share. The inputs' paths are excluded: they differ between machines."""
        return {
            "schema_version": VERSION,
            "source": self.source,
            "options": self.options.content(),
            "inputs": {input_.shard: {"name": input_.name, "size": input_.size()} for input_ in self.inputs},
        }


def job(output: Path) -> ShardJob:
    """The resumable output folder of a conversion."""
    return ShardJob.of(output, "a conversion", WORK)


def write_or_verify_plan(output: Path, plan: Plan, update: bool = False, moves: bool = True) -> None:
    """Writes the plan to `output`, or compares it with the existing plan.

    Raises DatasetError with the differences if they are not equal. With `update`, inputs may be new or of another size;
    the plan is then written anew. `moves`: where inputs lie is written, too, if some are no longer where they were.
    """
    paths = {
        "splits": [str(path.absolute()) for path in plan.options.splits],
        "inputs": {input_.shard: [str(path) for path in input_.files] for input_ in plan.inputs},
    }
    content = {"described": plan.identity(), "where": paths}
    job(output).write_or_verify_plan(content, partial(_differences, update=update))
    known = read_plan(output)
    places = (*known.options.splits, *(path for input_ in known.inputs for path in input_.files))
    if update or (moves and not all(path.exists() for path in places)):
        write_checked(job(output).plan_path, content)


def read_plan(output: Path) -> Plan:
    """The plan of the conversion in `output`."""
    content = job(output).read_plan()
    with job(output).parsing_plan():
        identity, paths = content["described"], content["where"]
        options = identity["options"]
        inputs = [
            Input(entry["name"], shard.partition("/")[0], shard, tuple(map(Path, paths["inputs"][shard])))
            for shard, entry in identity["inputs"].items()
        ]
        screens = ScreenFormat(**options["screens"])
        splits = tuple(map(Path, paths["splits"]))
        return Plan(identity["source"], Options(splits, options["mixture"], screens), tuple(inputs))


def _differences(before: dict, now: dict, update: bool = False) -> list[str]:
    """With `update`, those that it does not accept."""
    lines = [
        f"{key}: {before[key]!r} before, {now[key]!r} now"
        for key in ("schema_version", "source")
        if before[key] != now[key]
    ]
    for key, value in now["options"].items():
        old_value = before["options"].get(key)
        if old_value != value:
            before_now = (json.dumps(one, ensure_ascii=False) for one in (old_value, value))
            lines.append("option {}: {} before, {} now".format(key, *before_now))
    missing = _missing(before["inputs"], now["inputs"])
    if update:
        return [*lines, *first_lines(missing)]
    updates = _updates(before["inputs"], now["inputs"])
    if not missing and not updates and list(before["inputs"]) != list(now["inputs"]):
        return [*lines, "the inputs are in a different order"]
    remedy = ["add --update to convert new and changed inputs"] if updates and not lines and not missing else []
    return [*lines, *first_lines([*missing, *updates]), *remedy]


def _missing(before: dict, now: dict) -> list[str]:
    """Inputs of `EPISODES_PER_SHARD` episodes have their number in their names: all of them are missing where more
    episodes need one more."""
    numbered = {shard: NUMBERED.fullmatch(shard.removesuffix(".parquet")) for shard in (*before, *now)}
    counts = {match[1]: match[3] for shard in now if (match := numbered[shard])}
    lines = []
    for shard, about in before.items():
        if shard in now:
            continue
        if (match := numbered[shard]) and (count := counts.get(match[1], match[3])) != match[3]:
            lines.append(f"inputs {match[1]}-*: {int(match[3])} parts before, {int(count)} parts now")
        else:
            lines.append(f"input {about['name']} is missing")
    return list(dict.fromkeys(lines))


def _updates(before: dict, now: dict) -> list[str]:
    lines = [f"input {now[shard]['name']} is new" for shard in now if shard not in before]
    return lines + [
        f"input {now[shard]['name']}: {before[shard]['size']:,} bytes before, {now[shard]['size']:,} bytes now"
        for shard in now
        if shard in before and before[shard]["size"] != now[shard]["size"]
    ]


_SHOWN = 10


def first_lines(lines: list[str]) -> list[str]:
    return lines[:_SHOWN] + ([f"… and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else [])


def last_change_ns(input_: Input) -> int:
    """When the status of one of its files changed last, by the clock of their file system."""
    return max(path.stat().st_ctime_ns for path in input_.files)


def stamp(entry: Path, changed_ns: int) -> None:
    """Notes when the inputs of an entry changed last, as its time: its bytes do not depend on the machine. Only the
    owner of a file may set its time; inputs of entries without it are hashed at every start."""
    with suppress(PermissionError):
        os.utime(entry, ns=(changed_ns, changed_ns))


def read_entry(output: Path, input_: Input, duplicate_ids: frozenset[str]) -> Entry | None:
    """The entry of a converted input; None if it is not converted, or was converted with different `duplicate_ids`."""
    path = job(output).entry_path(input_.shard)
    if not path.is_file():
        return None
    content = read_checked(path, _REMEDY_OF_ENTRY, Entry)
    quarantine = [QuarantinedRecord(**line) for line in content["quarantine"]]
    entry = Entry(FileSummary(**content["summary"]), content["duplicate_ids"], quarantine)
    shard = None if entry.summary.shard is None else output / entry.summary.shard
    is_there = shard is None or (shard.is_file() and shard.stat().st_size == entry.summary.shard_size)
    return entry if is_there and entry.duplicate_ids == sorted(duplicate_ids) else None


def entries_of(plan: Plan, output: Path) -> dict[str, Entry | None]:
    """The entry of each input, by shard; None if it is not converted with these duplicates."""
    duplicates = read_duplicates(output)
    return {input_.shard: read_entry(output, input_, duplicates_in(duplicates, input_.shard)) for input_ in plan.inputs}


def without_changed(
    entries: Mapping[str, Entry | None], inputs: Sequence[Input], output: Path, console: Console, update: bool = False
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
    changed, stamped = last_change_ns(input_), job(output).entry_path(input_.shard).stat().st_mtime_ns
    # The file system of the output may keep whole seconds, or a tenth of a microsecond, as SMB does.
    return all(stamped != changed - changed % 10**digits for digits in range(10))


def complete_entries(plan: Plan, output: Path, console: Console) -> dict[str, Entry]:
    """The entry of each input, by shard. Raises DatasetError if inputs are not converted yet, or changed since."""
    return all_done(without_changed(entries_of(plan, output), plan.inputs, output, console), "converted")


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
    in the list of inputs, from 0. `written`: when the newest entry was. `eta`: `time_left` of the entries."""

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
        if self.waiting:
            return "in progress"
        return "complete" if self.is_complete else "all files are converted; run vlm-agent convert --finish"


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
