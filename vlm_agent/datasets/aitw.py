"""Android in the Wild: gzip TFRecords, one step a record, the steps of an episode adjacent and in order.

What a record holds is in `aitw_record`; the subset is not in it but in the file's name.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.aitw_record import encode_step, parse_step
from vlm_agent.datasets.episode_steps import BadRecord, EpisodeStep
from vlm_agent.datasets.grouping import EpisodeGroups, WholeEpisode
from vlm_agent.datasets.tf_example import ExampleError
from vlm_agent.datasets.tfrecord import read_records, write_records
from vlm_agent.episodes import SUBSETS, Episode, Step


def is_data(path: Path) -> bool:
    """Whether a file in a folder is named like one of AITW's."""
    return re.search(r"(-\d+-of-\d+|\.tfrecords?)(\.gz)?$", path.name) is not None


def subset_of(path: Path) -> str:
    """The subset that the file's name begins with (`google_apps-00000-of-00001`) or that its folder is named.

    Raises DatasetError where neither is one of `SUBSETS`.
    """
    if match := re.match(rf"({'|'.join(SUBSETS)})(?![a-z0-9])", path.name):
        return match[1]
    if path.absolute().parent.name in SUBSETS:
        return path.absolute().parent.name
    raise DatasetError(
        f"cannot tell the subset of {path}: name the file <subset>-00000-of-00001 or put it into a folder named "
        f"<subset>, which is one of {', '.join(SUBSETS)}"
    )


def read_steps(
    path: Path, subset: str | None = None, file: BinaryIO | None = None
) -> Iterator[EpisodeStep | BadRecord]:
    """The steps of a file in order, and every record that is none.

    Screens are read-only uint8 (height, width, 3) views of the record, points and boxes the file's float32 values.
    `file` is what to read in place of opening `path`: seekable, at its beginning.

    Raises DatasetError when `path` does not tell its subset and, without `file`, when it is a folder or does not exist.
    """
    subset = subset_of(path) if subset is None else subset
    for record in read_records(path, file):
        if record.error is not None:
            yield BadRecord(path, record.number, record.offset, record.error, record.ends_file)
            continue
        try:
            yield parse_step(record, path, subset)
        except (DatasetError, ExampleError) as error:
            yield BadRecord(path, record.number, record.offset, str(error))


def read_episodes(path: Path, subset: str | None = None) -> Iterator[Episode | BadRecord]:
    """The whole episodes of a file, and every record that is not part of one (what that means is in `grouping`).

    The steps of the episodes and the BadRecords together are all records of the file. Screens as in `read_steps`; those
    of the open episodes are held raw, so this is for files that are known.

    Raises DatasetError when `path` is a folder, does not exist or does not tell its subset.
    """
    groups: EpisodeGroups[Step] = EpisodeGroups()
    for item in read_steps(path, subset):
        if isinstance(item, BadRecord):
            yield item
        else:
            yield from map(_episode, groups.add(item, item.step, size=0))
    yield from map(_episode, groups.close())


def write_episodes(path: Path, episodes: Iterable[Episode]) -> int:
    """Writes a gzip TFRecord file as AITW's own are, and returns the number of steps.

    Name it `<subset>-00000-of-00001`, or its folder after the subset, or it cannot be read back. The same episodes give
    the same bytes. The file appears only when complete.

    Raises DatasetError for an episode without pixels.
    """
    return write_records(path, (encode_step(episode, number) for episode in episodes for number in range(len(episode))))


def _episode(item: WholeEpisode[Step] | BadRecord) -> Episode | BadRecord:
    if isinstance(item, BadRecord):
        return item
    head = item.head
    return Episode(head.episode_id, head.subset, head.goal, tuple(item.steps), head.device_type, head.android_api_level)
