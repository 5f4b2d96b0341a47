"""The end of a conversion: every input is there, no episode is there twice, and the manifest says so."""

import json
from pathlib import Path

import pyarrow.parquet as pq

import vlm_agent
from vlm_agent.datasets import DatasetError, written_whole
from vlm_agent.datasets.convert.one_input import read_entry
from vlm_agent.datasets.convert.plan import WORK, Plan, read_json, write_json
from vlm_agent.datasets.convert.summary import COUNTS, QUARANTINE, ConversionSummary, Entry
from vlm_agent.datasets.shards import write_manifest

_DUPLICATES = "duplicates.json"
_SHOWN = 5


def entries_of(plan: Plan, output: Path) -> dict[str, Entry | None]:
    """By shard, the entry of each input; None where it is not converted (as it has to be now)."""
    had = read_had(output)
    return {given.shard: read_entry(output, given, had_by(had, given.shard)) for given in plan.inputs}


def read_had(output: Path) -> dict[str, list[str]]:
    """By shard, the ids of its episodes that an earlier input gives as well: the first in order keeps it."""
    path = output / WORK / _DUPLICATES
    return read_json(path) if path.is_file() else {}


def had_by(had: dict[str, list[str]], shard: str) -> frozenset[str]:
    return frozenset(had.get(shard, ()))


def note_duplicates(plan: Plan, output: Path, entries: dict[str, Entry]) -> bool:
    """Looks through the ids of all shards; whether some have to be converted again without episodes had before.

    Raises DatasetError for a shard that cannot be read or does not hold what its entry says.
    """
    had = read_had(output)
    owners: dict[str, str] = {}
    found = False
    for given in plan.inputs:
        for episode_id in _ids(output, entries[given.shard]):
            if owners.setdefault(episode_id, given.shard) != given.shard:
                had.setdefault(given.shard, []).append(episode_id)
                found = True
    if found:
        write_json(output / WORK / _DUPLICATES, had)
    return found


def write_results(plan: Plan, output: Path, entries: dict[str, Entry]) -> ConversionSummary:
    """The quarantine, then the manifest, which means complete."""
    ordered = [entries[given.shard] for given in plan.inputs]
    with written_whole(output / QUARANTINE) as temporary, temporary.open("w", encoding="utf-8") as file:
        for entry in ordered:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in entry.quarantine)
    summary = ConversionSummary.of(output, ordered)
    write_manifest(output, _manifest(plan, summary))
    return summary


def check_all_there(plan: Plan, entries: dict[str, Entry | None]) -> None:
    """Raises DatasetError, naming some, while inputs are not converted."""
    missing = [given.name for given in plan.inputs if entries[given.shard] is None]
    if missing:
        named = ", ".join(missing[:_SHOWN]) + (", …" if len(missing) > _SHOWN else "")
        raise DatasetError(
            f"{len(missing)} of {len(plan.inputs)} inputs are not converted yet ({named}); run their part of the job "
            "array again, or the same command without --shard-index"
        )


def _ids(output: Path, entry: Entry) -> list[str]:
    summary = entry.summary
    if summary.shard is None:
        return []
    path = output / summary.shard
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            ids = file.read(["episode_id"], use_threads=False)["episode_id"].to_pylist()
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read ({error}); remove it and run the same command again") from None
    if len(ids) != summary.episodes_written:
        raise DatasetError(
            f"{path} holds {len(ids)} episodes where {summary.episodes_written} were written; remove it and run the "
            "same command again"
        )
    return ids


def _manifest(plan: Plan, summary: ConversionSummary) -> dict:
    described = plan.described()
    return {
        "vlm_agent_version": vlm_agent.__version__,
        "source": described["source"],
        "options": described["options"],
        **{name: summary.total(name) for name in COUNTS},
        "episodes_left_out": summary.totals_by("episodes_left_out"),
        "episode_faults": summary.totals_by("episode_faults"),
        "files_cut_short": summary.cut_short,
        "files": [vars(file) | {"steps_read": file.steps_read} for file in summary.files],
    }
