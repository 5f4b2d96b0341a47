"""The last step of a conversion: check that all inputs are converted, remove duplicates, write the manifest."""

import json
from pathlib import Path

from rich.console import Console

import vlm_agent
from vlm_agent.datasets.convert.changes import without_changed
from vlm_agent.datasets.convert.one_input import read_entry
from vlm_agent.datasets.convert.plan import WORK, Plan
from vlm_agent.datasets.convert.summary import COUNTS, QUARANTINE, ConversionSummary, Entry
from vlm_agent.datasets.shards.dataset import write_manifest
from vlm_agent.datasets.shards.schema import check_is_shard
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write
from vlm_agent.files.checked_json import read_checked, write_checked
from vlm_agent.files.console import Progress
from vlm_agent.files.parquet import open_parquet

_DUPLICATES = "duplicates.json"
_REMEDY = "remove it and run the same command again"
_SHOWN = 5


def entries_of(plan: Plan, output: Path) -> dict[str, Entry | None]:
    """The entry of each input, by shard; None if it is not converted with these duplicates."""
    duplicates = read_duplicates(output)
    return {input_.shard: read_entry(output, input_, duplicates_in(duplicates, input_.shard)) for input_ in plan.inputs}


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


def write_results(plan: Plan, output: Path, entries: dict[str, Entry]) -> ConversionSummary:
    """Writes the quarantine, then the manifest, whose existence means that the conversion is complete."""
    ordered = [entries[input_.shard] for input_ in plan.inputs]
    with atomic_write(output / QUARANTINE) as temporary, temporary.open("w", encoding="utf-8") as file:
        for entry in ordered:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in entry.quarantine)
    summary = ConversionSummary.of(output, ordered)
    write_manifest(output, _manifest(plan, summary))
    return summary


def complete_entries(plan: Plan, output: Path, console: Console) -> dict[str, Entry]:
    """The entry of each input, by shard. Raises DatasetError if inputs are not converted yet, or changed since."""
    entries = without_changed(entries_of(plan, output), plan.inputs, output, console)
    complete = {shard: entry for shard, entry in entries.items() if entry is not None}
    missing = [input_.name for input_ in plan.inputs if input_.shard not in complete]
    if missing:
        examples = ", ".join(missing[:_SHOWN]) + (", …" if len(missing) > _SHOWN else "")
        raise DatasetError(
            f"{len(missing)} of {len(plan.inputs)} inputs are not converted yet ({examples}); run their part of the "
            "job array again, or the same command without --shard-index"
        )
    return complete


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


def _manifest(plan: Plan, summary: ConversionSummary) -> dict:
    identity = plan.identity()
    return {
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
