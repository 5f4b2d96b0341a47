"""Whole episodes of an AITW file, without a conversion."""

from collections.abc import Iterator
from pathlib import Path

from vlm_agent.datasets.convert.grouping import CompleteEpisode, EpisodeGroups
from vlm_agent.datasets.sources import BadRecord
from vlm_agent.datasets.sources.aitw import read_steps
from vlm_agent.episodes import Episode, Step


def read_episodes(path: Path, subset: str | None = None) -> Iterator[Episode | BadRecord]:
    """The whole episodes of a file, and a BadRecord for every record that is not part of one.

    The steps of the episodes and the BadRecords together are all records of the file. Screens of open episodes stay in
    memory.
    """
    groups: EpisodeGroups[Step] = EpisodeGroups()
    for item in read_steps(path, subset):
        if isinstance(item, BadRecord):
            yield item
        else:
            yield from map(_episode, groups.add(item, item.step, size=0))
    yield from map(_episode, groups.close())


def _episode(item: CompleteEpisode[Step] | BadRecord) -> Episode | BadRecord:
    if isinstance(item, BadRecord):
        return item
    head = item.head
    return Episode(head.episode_id, head.subset, head.goal, tuple(item.steps), head.device_type, head.android_api_level)
