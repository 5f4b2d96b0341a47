"""Folders of shards for tests of features."""

from dataclasses import replace
from pathlib import Path

from helpers import tiny

from vlm_agent.datasets.shards.writer import ShardWriter, write_manifest

SUBSETS = ("general", "single")


def write_several(folder: Path, episodes: int = 2, first: int = 0, subsets: tuple[str, ...] = SUBSETS) -> Path:
    """A shard for each subset, with this many episodes of five steps; the last one of a shard is in split `test`.

    The pixels of an episode depend on its number, counted through from `first`.
    """
    files = []
    for place, subset in enumerate(subsets):
        name = f"{subset}/{subset}-00000-of-00001.parquet"
        with ShardWriter(folder / name) as shard:
            for number in range(first + place * episodes, first + (place + 1) * episodes):
                last = number == first + (place + 1) * episodes - 1
                shard.write(replace(tiny.episode(number), subset=subset), "test" if last else "train")
        files.append({"shard": name, "subset": subset, "episodes_written": episodes})
    write_manifest(folder, {"files": files, "first": first})
    return folder
