"""The last step of an annotation: apply the edits of a review, check the action descriptions, write the manifest."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

import vlm_agent
from vlm_agent.annotation.annotator import TEXTS
from vlm_agent.annotation.check import Finding, check_dataset
from vlm_agent.annotation.edits import EditStore
from vlm_agent.annotation.job.settings import WORK, AnnotationPlan, job
from vlm_agent.annotation.job.shards import ORIGINS, ShardEntry, apply_edits, read_entry
from vlm_agent.datasets.shards.dataset import ShardDataset, read_manifest
from vlm_agent.datasets.shards.writer import write_manifest
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write
from vlm_agent.files.console import new_table
from vlm_agent.files.jobs import all_done

FINDINGS = "findings.jsonl"
_SHOWN = 5


def finish(output: Path, console: Console) -> None:
    """Applies edits and writes the manifest after all tasks of a job array, or after a review.

    Raises DatasetError if shards are missing, and where another process has the folder.
    """
    plan = AnnotationPlan.read(output)
    with job(output).locked():
        complete(output, plan)
    summarise(output, console)


def complete(output: Path, plan: AnnotationPlan) -> None:
    """Finishes as `finish` does, without its summary. The caller must hold the folder."""
    edits = EditStore(output / WORK)
    for shard, entry in zip(plan.shards, _entries(output, plan), strict=True):
        if edits.digest(shard.episode_ids) != entry.edits:
            job(output).begin()
            apply_edits(output, shard, entry, edits)
    entries = _entries(output, plan)
    with atomic_write(output / FINDINGS) as temporary, temporary.open("w", encoding="utf-8") as file:
        for entry in entries:
            file.writelines(json.dumps(finding, ensure_ascii=False) + "\n" for finding in entry.findings)
    write_manifest(output, _manifest(plan, entries, edits))


def summarise(output: Path, console: Console) -> None:
    """Prints the counts of a complete annotation, and its first findings."""
    manifest = read_manifest(output)
    console.print(
        f"{output}: {manifest['steps_written']:,} steps of {manifest['episodes_written']:,} episodes in "
        f"{len(manifest['files']):,} shards; {manifest['steps_edited']:,} steps edited, {manifest['steps_accepted']:,} "
        "accepted",
        highlight=False,
        soft_wrap=True,
    )
    table = new_table("", ("text", *_COLUMNS))
    for name, counts in manifest["texts"].items():
        table.add_row(name, *(f"{counts.get(column, 0):,}" for column in _COLUMNS))
    console.print(table)
    if findings := read_findings(output):
        print_findings(findings, console, f"see {output / FINDINGS}")


def print_findings(findings: Sequence[Finding], console: Console, more: str, shown: int = _SHOWN) -> None:
    """The first findings, and how many there are by problem."""
    for finding in findings[:shown]:
        console.print(Text(str(finding)), soft_wrap=True)
    by_problem = Counter(finding.problem for finding in findings)
    counts = ", ".join(f"{count:,} {problem}" for problem, count in by_problem.most_common())
    kinds = "text(s)" if any(finding.is_of_plan for finding in findings) else "action description(s)"
    console.print(Text(f"{len(findings):,} {kinds} need a look ({counts}); {more}"), soft_wrap=True)


def read_findings(output: Path) -> list[Finding]:
    """The findings of a complete annotation."""
    lines = (output / FINDINGS).read_text(encoding="utf-8").split("\n")
    return [Finding(**json.loads(line)) for line in lines if line]


_COLUMNS = (*ORIGINS, "missing")


def _entries(output: Path, plan: AnnotationPlan) -> list[ShardEntry]:
    return list(all_done({shard.shard: read_entry(output, shard) for shard in plan.shards}, "annotated").values())


def _manifest(plan: AnnotationPlan, entries: Sequence[ShardEntry], edits: EditStore) -> dict[str, Any]:
    edited, accepted = edits.totals(name for shard in plan.shards for name in shard.episode_ids)
    counts = {name: Counter[str]() for name in TEXTS}
    for entry in entries:
        for name, by_origin in entry.counts.items():
            counts.setdefault(name, Counter()).update(by_origin)
    return {
        "vlm_agent_version": vlm_agent.__version__,
        "annotation": dict(plan.described),
        "texts": {name: dict(sorted(count.items())) for name, count in counts.items()},
        "steps_written": sum(shard.steps for shard in plan.shards),
        "episodes_written": sum(len(shard.episode_ids) for shard in plan.shards),
        "steps_edited": edited,
        "steps_accepted": accepted,
        "findings": sum(len(entry.findings) for entry in entries),
        "files": [
            {
                "name": shard.shard,
                "subset": shard.subset,
                "shard": shard.shard,
                "steps_written": shard.steps,
                "episodes_written": len(shard.episode_ids),
            }
            for shard in plan.shards
        ],
    }


def check(shards: Path, split: str | None, subset: str | None, console: Console) -> None:
    """Prints every finding of a folder of shards, annotated here or elsewhere."""
    dataset = ShardDataset(shards, split, subset)
    if findings := list(check_dataset(dataset)):
        print_findings(findings, console, f"checked {len(dataset):,} episodes", len(findings))
    elif kinds := _kinds_of_texts(dataset):
        console.print(f"Checked {len(dataset):,} episodes: no {' or '.join(kinds)} needs a look", highlight=False)
    else:
        raise DatasetError(
            f"{shards} has no texts to check; write them with `vlm-agent annotate {shards} --endpoint …`"
        )


def _kinds_of_texts(dataset: ShardDataset) -> list[str]:
    """The texts that the check reads, as far as the dataset has them."""
    kinds = {"action": "action description", "step": "plan"}
    found: set[str] = set()
    for episode in dataset.each_without_pixels(range(len(dataset))):
        found |= {name for step in episode.steps for name in kinds.keys() & step.notes.keys()}
        if len(found) == len(kinds):
            break
    return [kind for name, kind in kinds.items() if name in found]
