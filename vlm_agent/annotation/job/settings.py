"""The plan of an annotation: what decides its output. A second run with a different plan is refused.

DIR/.annotation/                plan and entries (`files/jobs.py`)
DIR/.annotation/calls/          the replies of the model
DIR/.annotation/edits/          the edits of a review
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vlm_agent.annotation.annotator import CHOICES, TEXTS
from vlm_agent.annotation.prompts import Prompts
from vlm_agent.datasets.shards.dataset import WORK_FOLDERS, ShardDataset, manifest_digest
from vlm_agent.errors import DatasetError
from vlm_agent.files.jobs import ShardJob

WORK = WORK_FOLDERS["annotate"]


@dataclass(frozen=True)
class AnnotationSettings:
    """What decides the texts besides prompts and shards. `split`, `subset`, `limit`: which episodes, and how many."""

    model: str
    texts: tuple[str, ...] = TEXTS
    replace: bool = False
    max_tokens: int = 512
    split: str | None = None
    subset: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class ShardPlan:
    """A shard of the output: its path, its subset and the ids of its episodes, all of one input shard."""

    shard: str
    subset: str
    episode_ids: tuple[str, ...]
    steps: int


@dataclass(frozen=True)
class AnnotationPlan:
    """`described` decides the output; the shards' path may differ between machines."""

    described: Mapping[str, Any]
    where: Path
    shards: tuple[ShardPlan, ...]

    def content(self) -> dict[str, Any]:
        return {
            "described": dict(self.described),
            "where": str(self.where.absolute()),
            "shards": [asdict(shard) | {"episode_ids": list(shard.episode_ids)} for shard in self.shards],
        }

    @classmethod
    def read(cls, output: Path) -> "AnnotationPlan":
        """The plan in a folder. Raises DatasetError where it is missing or damaged."""
        content = job(output).read_plan()
        with job(output).parsing_plan():
            shards = tuple(
                ShardPlan(one["shard"], one["subset"], tuple(one["episode_ids"]), one["steps"])
                for one in content["shards"]
            )
            return cls(content["described"], Path(content["where"]), shards)


def plan_of(dataset: ShardDataset, settings: AnnotationSettings, prompts: Prompts) -> AnnotationPlan:
    """`dataset`: opened with the split and subset of the settings.

    Raises DatasetError where no episode is chosen.
    """
    count = len(dataset) if settings.limit is None else min(settings.limit, len(dataset))
    if not count:
        raise DatasetError(f"{dataset.directory} has no episode to annotate; check --split and --subset")
    described = {
        "shards": {"manifest_sha256": manifest_digest(dataset.directory)},
        "prompts_sha256": prompts.digest,
        **asdict(settings),
        "texts": [name for name in CHOICES if name in settings.texts],
    }
    if prompts.plan_digest is not None:
        described["plan_prompts_sha256"] = prompts.plan_digest
    by_shard: dict[str, list[int]] = {}
    for index in range(count):
        by_shard.setdefault(dataset.place(index)[0], []).append(index)
    shards = tuple(
        ShardPlan(
            shard,
            dataset.subsets[indices[0]],
            tuple(dataset.ids[index] for index in indices),
            sum(len(dataset.screen_sizes[index]) for index in indices),
        )
        for shard, indices in by_shard.items()
    )
    return AnnotationPlan(described, dataset.directory, shards)


def job(output: Path) -> ShardJob:
    """The resumable output folder of an annotation."""
    return ShardJob.of(output, "an annotation", WORK)
