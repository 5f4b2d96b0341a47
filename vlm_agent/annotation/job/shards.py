"""Writes the shards of an annotation: the rows of the input with other texts, all other columns unchanged.

The entry of a shard is written after the shard, so its existence means that the shard is complete. Edits only replace
texts, so they are applied to a complete shard without another call.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vlm_agent.annotation.annotator import TEXTS, StepTexts
from vlm_agent.annotation.check import check_episode
from vlm_agent.annotation.edits import EditStore
from vlm_agent.annotation.job.settings import ShardPlan, job
from vlm_agent.datasets.shards.schema import from_row, note_structs, notes_of
from vlm_agent.datasets.shards.writer import ShardWriter
from vlm_agent.errors import DatasetError
from vlm_agent.files import read_checked, write_checked
from vlm_agent.files.parquet import open_parquet, read_footer

_REMEDY = "remove it and run the same command again"

ORIGINS = ("kept", "template", "model", "none")


@dataclass(frozen=True)
class Failure:
    """A text that is missing: its episode, step (from 0) and name (`CHOICES`), and why."""

    episode: str
    step: int
    text: str
    reason: str


@dataclass
class ShardEntry:
    """A complete shard. `edits`: the digest of the edits in it. `counts`: steps by text, then by origin or `missing`.

    `findings`: action descriptions that need a look, as `Finding` has them.
    """

    shard: str
    edits: str
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def missing(self) -> int:
        return sum(count.get("missing", 0) for count in self.counts.values())


def read_entry(output: Path, plan: ShardPlan) -> ShardEntry | None:
    """The entry of a complete shard, None without one or if the shard is missing or damaged."""
    path = job(output).entry_path(plan.shard)
    if not path.is_file():
        return None
    entry = ShardEntry(**read_checked(path, _REMEDY, ShardEntry))
    with suppress(DatasetError):
        footer = read_footer(output / plan.shard, _REMEDY)
        return entry if footer.metadata.num_row_groups == len(plan.episode_ids) else None
    return None


AnnotatedRow = tuple[dict[str, Any], Sequence[StepTexts]]
"""A row of the input (`ShardDataset.row`), and the texts of its steps."""


def write_shard(
    output: Path,
    plan: ShardPlan,
    rows: Iterable[AnnotatedRow],
    edits: EditStore,
    accept_missing: bool,
    report: Callable[[int], None],
    counted: Sequence[str] = TEXTS,
) -> list[Failure]:
    """Writes a shard and its entry if no text is missing, or with `accept_missing`; returns what is missing.

    All of `rows` is read in either case. `report` is called with the number of steps of each row. `counted`: the texts
    whose origins the entry counts.
    """
    failures: list[Failure] = []
    findings: list[dict[str, Any]] = []
    counts = {name: Counter[str]() for name in counted}
    digest = edits.digest(plan.episode_ids)

    with suppress(_Incomplete):
        with ShardWriter(output / plan.shard) as writer:
            for row, steps in rows:
                for number, (struct, step) in enumerate(zip(row["steps"], steps, strict=True)):
                    struct["notes"] = note_structs(step.notes)
                    failures += [Failure(row["episode_id"], number, *missing) for missing in step.failed.items()]
                    for name in counted:
                        counts[name]["missing" if name in step.failed else step.origin[name]] += 1
                annotated = _checked(_edited(row, edits), findings)
                if accept_missing or not failures:
                    writer.write_row(annotated)
                report(len(steps))
            if failures and not accept_missing:
                raise _Incomplete
        by_text = {name: dict(sorted(count.items())) for name, count in counts.items()}
        write_checked(job(output).entry_path(plan.shard), asdict(ShardEntry(plan.shard, digest, by_text, findings)))
    return failures


def apply_edits(output: Path, plan: ShardPlan, entry: ShardEntry, edits: EditStore) -> None:
    """Rewrites a complete shard and its entry with the edits."""
    digest = edits.digest(plan.episode_ids)
    findings: list[dict[str, Any]] = []
    with open_parquet(output / plan.shard, _REMEDY) as file, ShardWriter(output / plan.shard) as writer:
        for number in file.groups:
            row = file.read(groups=[number]).to_pylist()[0]
            writer.write_row(_checked(_edited(row, edits), findings))
    write_checked(job(output).entry_path(plan.shard), asdict(entry) | {"edits": digest, "findings": findings})


class _Incomplete(Exception):  # noqa: N818 (removes the temporary file of a shard)
    pass


def _edited(row: dict[str, Any], edits: EditStore) -> dict[str, Any]:
    for number, edit in edits.load(row["episode_id"]).items():
        if edit.texts and number < len(row["steps"]):
            struct = row["steps"][number]
            struct["notes"] = note_structs(notes_of(struct["notes"]) | dict(edit.texts))
    return row


def _checked(row: dict[str, Any], findings: list[dict[str, Any]]) -> dict[str, Any]:
    """The row; appends its findings."""
    structs = [{name: value for name, value in struct.items() if name != "screenshot"} for struct in row["steps"]]
    findings.extend(asdict(finding) for finding in check_episode(from_row(row | {"steps": structs})))
    return row
