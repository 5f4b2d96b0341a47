"""Android in the Wild: gzip TFRecords, one step a record, the steps of an episode adjacent and in order.

What a record holds is in `aitw_record`; the subset is not in it but in the file's name.
"""

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.aitw_record import EpisodeStep, encode_step, parse_step
from vlm_agent.datasets.tf_example import ExampleError
from vlm_agent.datasets.tfrecord import Record, read_records, write_records
from vlm_agent.episodes import SUBSETS, Episode, Step


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that is not used: in which file, which one (from 0), where (bytes of the inflated stream), and why."""

    file: Path
    record: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: record {self.record} (at byte {self.offset}): {self.reason}"


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


def read_episodes(path: Path, subset: str | None = None, known: Container[str] = ()) -> Iterator[Episode | BadRecord]:
    """The whole episodes of a file in order, and every record that is not part of one.

    An episode is whole when its records are adjacent, agree about `episode_length`, and have the step ids 0, 1, …,
    episode_length − 1 in that order. The steps of any other episode come as BadRecords, each with the reason: a
    trajectory with a hole would teach a transition that never happened. The same goes for an episode whose id is in
    `known`, which may grow while the file is read: it was had before. So the steps of the episodes and the BadRecords
    together are all records of the file.

    Screens are read-only uint8 (height, width, 3) views of the record, points and boxes the file's float32 values.

    Raises DatasetError when `path` is a folder, does not exist or does not tell its subset.
    """
    subset = subset_of(path) if subset is None else subset
    group = _Group(path, subset, known)
    for record in read_records(path):
        try:
            parsed = _parse(record)
        except (DatasetError, ExampleError) as error:
            yield BadRecord(path, record.number, record.offset, str(error))
            continue
        yield from group.add(record, parsed)
    yield from group.close()


def write_episodes(path: Path, episodes: Iterable[Episode]) -> int:
    """Writes a gzip TFRecord file as AITW's own are, and returns the number of steps.

    Name it `<subset>-00000-of-00001`, or its folder after the subset, or it cannot be read back. The same episodes give
    the same bytes. The file appears only when complete.

    Raises DatasetError for an episode without pixels.
    """
    return write_records(path, (encode_step(episode, number) for episode in episodes for number in range(len(episode))))


def _parse(record: Record) -> EpisodeStep:
    if record.error is not None:
        raise DatasetError(record.error)
    return parse_step(record.payload)


@dataclass
class _Group:
    """Collects adjacent steps into whole episodes.

    Once an episode is spoiled only the places of its records are kept, so that memory stays bounded whatever comes.
    """

    path: Path
    subset: str
    known: Container[str]
    first: EpisodeStep | None = None
    steps: list[Step] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    spoiled: str | None = None

    def add(self, record: Record, parsed: EpisodeStep) -> Iterator[Episode | BadRecord]:
        if self.first is not None and parsed.episode_id != self.first.episode_id:
            yield from self.close()
        if self.first is None:
            self.first = parsed
        self.places.append((record.number, record.offset))
        self.steps.append(parsed.step)
        self.spoiled = self.spoiled or self._fault(parsed)
        if self.spoiled:
            self.steps.clear()
        elif len(self.steps) == parsed.episode_length:
            yield self._finish()

    def close(self) -> Iterator[BadRecord]:
        """What is left where an episode ends before its last step."""
        if self.first is None:
            return
        if self.spoiled is None:
            self.spoiled = f"it has only {len(self.steps)} of {self.first.episode_length} steps"
        reason = f"episode {self.first.episode_id} is left out as a whole: {self.spoiled}"
        places, self.first, self.spoiled = self.places, None, None
        self.steps, self.places = [], []
        for number, offset in places:
            yield BadRecord(self.path, number, offset, reason)

    def _fault(self, parsed: EpisodeStep) -> str | None:
        if parsed.episode_id in self.known:
            return "an episode of this id was read before"
        expected = len(self.steps) - 1
        if parsed.episode_length != self.first.episode_length:
            return f"episode_length is {self.first.episode_length} and then {parsed.episode_length}"
        if parsed.step_id != expected:
            return f"step {parsed.step_id} comes where step {expected} is due"
        return None

    def _finish(self) -> Episode:
        first, steps = self.first, tuple(self.steps)
        self.first, self.steps, self.places = None, [], []
        return Episode(first.episode_id, self.subset, first.goal, steps, first.device_type, first.android_api_level)
