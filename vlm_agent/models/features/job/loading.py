"""Reads the episodes of a shard ahead of the model: decoded, their pixels' digests computed, resized."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import numpy as np

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.files.threads import ahead
from vlm_agent.models.features.extractor import Preprocess
from vlm_agent.models.features.store.pixels import pixel_digest

_MOST_WORKERS = 8


def default_workers() -> int:
    """Half of the cores that this process may use, at most eight. Decoding, resizing and hashing release the GIL."""
    return max(1, min(_MOST_WORKERS, len(os.sched_getaffinity(0)) // 2))


@dataclass(frozen=True)
class LoadedEpisode:
    """`screens`: for each step, uint8 (3, height, width) as the extractor takes it. `digests`: of the pixels before."""

    id: str
    screens: list[np.ndarray]
    digests: list[bytes]


def load_episode(dataset: ShardDataset, preprocess: Preprocess, index: int) -> LoadedEpisode:
    pixels = [step.screenshot for step in dataset[index].steps if step.screenshot is not None]
    return LoadedEpisode(
        dataset.ids[index], [preprocess(screen) for screen in pixels], [pixel_digest(screen) for screen in pixels]
    )


def loaded_episodes(
    dataset: ShardDataset, episodes: Sequence[int], preprocess: Preprocess, workers: int
) -> AbstractContextManager[Iterator[LoadedEpisode]]:
    """The episodes in order, while `workers` threads load the next ones."""
    return ahead(partial(load_episode, dataset, preprocess), episodes, workers)
