"""Whether the episodes that an evaluation scores are those of a published split.

The name of a benchmark does not prove it: `--shards` may name any conversion, and a conversion may lack episodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, Self

from pydantic import Field, PositiveInt, model_validator

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.sources import SIMULATED_DEVICE
from vlm_agent.datasets.sources.registry import SOURCES
from vlm_agent.settings import Section


def is_published_data(dataset: ShardDataset) -> bool:
    """Whether papers print numbers on the data set of these episodes. A simulated phone's episodes have AITW's format,
    and are known by their device."""
    source = SOURCES.get(dataset.manifest.get("source", ""))
    if source is None or not source.is_published:
        return False
    devices = dataset.table(["device_type"])["device_type"].unique().to_pylist()
    return not any(device.startswith(SIMULATED_DEVICE) for device in devices)


_NOT_STATED = "the benchmark file does not state its published test episodes"


class PublishedSplit(Section):
    """What is published of the test episodes, by subset.

    `episodes`: their number. `steps`: the number of their steps. `ids`: the SHA-256 of their sorted ids, each followed
    by a newline (`ids_digest`). A number of episodes alone does not identify a split, so each subset has `steps` or
    `ids`.
    """

    episodes: dict[str, PositiveInt]
    steps: dict[str, PositiveInt] = {}  # noqa: RUF012 (pydantic copies it)
    ids: dict[str, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] = {}  # noqa: RUF012 (pydantic copies it)

    @model_validator(mode="after")
    def _identifies_each_subset(self) -> Self:
        for subset in self.episodes:
            if subset not in self.steps and subset not in self.ids:
                raise ValueError(f"subset {subset} needs steps or ids beside its number of episodes")
        if unknown := (set(self.steps) | set(self.ids)) - set(self.episodes):
            raise ValueError(f"subset {min(unknown)} has no number of episodes")
        return self

    def difference(self, subset: str, ids: Sequence[str], steps: int) -> str | None:
        """How the scored episodes of a subset, with `steps` steps in all, differ; None if they agree."""
        if subset not in self.episodes:
            return _NOT_STATED
        if len(ids) != self.episodes[subset]:
            return f"{len(ids):,} episode(s) here, {self.episodes[subset]:,} published"
        if steps != self.steps.get(subset, steps):
            return f"{steps:,} steps here, {self.steps[subset]:,} published"
        if subset in self.ids and ids_digest(ids) != self.ids[subset]:
            return "other episodes than the published ones"
        return None


def ids_digest(ids: Iterable[str]) -> str:
    return sha256("".join(f"{id_}\n" for id_ in sorted(ids)).encode()).hexdigest()


def compare_split(published: PublishedSplit | None, dataset: ShardDataset, chosen: Iterable[int]) -> dict[str, Any]:
    """`agrees`: the subsets whose scored episodes are known to be the published ones. `differs`: for each other subset,
    of the run or published, the reason. `chosen`: indices of the scored episodes."""
    ids: dict[str, list[str]] = {}
    steps: dict[str, int] = {}
    for index in chosen:
        subset = dataset.subsets[index]
        ids.setdefault(subset, []).append(dataset.ids[index])
        steps[subset] = steps.get(subset, 0) + len(dataset.screen_sizes[index])
    stated: Mapping[str, int] = {} if published is None else published.episodes
    reasons = {
        subset: _NOT_STATED
        if published is None
        else published.difference(subset, ids.get(subset, []), steps.get(subset, 0))
        for subset in dict.fromkeys([*ids, *stated])
    }
    return {
        "agrees": [subset for subset, reason in reasons.items() if reason is None],
        "differs": {subset: reason for subset, reason in reasons.items() if reason is not None},
    }
