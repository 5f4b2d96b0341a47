"""Sources: the data sets that `vlm-agent convert` reads. Each source is one file, and one entry in `registry.py`.

A source file defines `SOURCE`, a `Source`: its name, how to recognise its files, which of them become one shard, and
how to read their steps. No other code of the package knows a source by name. `checks.py` has code that sources share:
JSON fields, PNG files, elements and size limits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vlm_agent.episodes import Step
from vlm_agent.files.hashing import HashedFiles

SPLITS = ("train", "validation", "test")

LABELS = {label: label for label in SPLITS} | {"val": "validation"}
"""Split by its label in a file or as the name of a folder."""

SIMULATED_DEVICE = "simulated_"
"""The `device_type` of an episode on the simulated phone begins with this; all else has AITW's format."""

EPISODES_PER_SHARD = 200
"""For sources with a file or a folder per episode: a shard per episode would be slow to open."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """An unusable record and the reason.

    `record` is its number in the file, from 0; `offset` its first byte in the uncompressed file. `ends_file`: the rest
    of the file could not be read either, and its number of records is unknown. `steps`: its steps, more than one where
    a record is an episode that is refused as a whole; 1 where they cannot be counted.
    """

    file: Path
    record: int
    offset: int
    reason: str
    ends_file: bool = False
    steps: int = 1


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Readable steps, or episodes, that are no training data. They are counted by `reason`, and are no errors.

    `reason` is part of the sentence "3 step(s) excluded: withheld".
    """

    reason: str
    steps: int = 0
    episodes: int = 0


@dataclass(frozen=True, slots=True)
class EpisodeStep:
    """One usable record: its position in its file, its position in its episode, and the step.

    `episode_id` is unique in the data set, not only in its file. `split` is the split in the source, or None: such
    episodes are in `train` unless `convert --splits` assigns a split. `fingerprint` distinguishes a repeated record
    from two different records for the same step: a checksum of the record's bytes, the same in every process. `step`
    is None in copies that need only the other fields. `moved_points`: how many of the action's points were outside the
    screen, and are at its edge now. `png`: the screen as a checked PNG, in place of the step's pixels; it is stored as
    it is. `step.stored_size` is then its size.
    """

    file: Path
    record: int
    offset: int
    fingerprint: int
    episode_id: str
    subset: str
    step_id: int
    episode_length: int
    goal: str
    step: Step | None
    device_type: str = ""
    android_api_level: int = 0
    split: str | None = None
    moved_points: int = 0
    png: bytes | memoryview | None = None


@dataclass(frozen=True)
class Input:
    """The files that become one shard: `files` of one subset, main files and their other files, such as screens.

    `name` is the input's name in the manifest, `shard` the path of its shard within the output folder:
    `<subset>/<name>.parquet`.
    """

    name: str
    subset: str
    shard: str
    files: tuple[Path, ...]

    @classmethod
    def of(cls, name: str, subset: str, files: Iterable[Path]) -> "Input":
        return cls(name, subset, f"{subset}/{name}.parquet", tuple(files))

    def size(self) -> int:
        """Bytes of its files."""
        return sum(path.stat().st_size for path in self.files)


@dataclass(frozen=True)
class Source:
    """A kind of data set that can be converted.

    name: the value of `--source`.
    about: a few words for the help of `--source`.
    subsets: the names of its subsets, if the data set has fixed ones.
    is_published: whether papers print scores on it (`evaluation/report/published.yaml`).
    example: an example of a file name, for the error about a folder without such files.
    is_data: whether a file in a folder belongs to this source, decided by its name.
    inputs: groups the files into inputs. An input has one subset (see `checks.check_subset`). Raises DatasetError for
        a file whose subset cannot be determined.
    read: yields the steps of an input in order, a BadRecord for each unusable record, and Exclusions, so that every
        record is counted. Opens every file through `HashedFiles.open`, so that the manifest contains its SHA-256.

    has_own_names: whether a file with such a name can be of no other source.
    split_files: the split files that come with the data, name → file, in a list of files and folders to convert;
        `convert --split NAME` chooses one.

    The functions must be defined at module level, because worker processes import them by name.
    """

    name: str
    about: str
    example: str
    is_data: Callable[[Path], bool]
    inputs: Callable[[Sequence[Path]], list[Input]]
    read: Callable[[Input, HashedFiles], Iterator[EpisodeStep | BadRecord | Exclusion]]
    subsets: tuple[str, ...] = ()
    is_published: bool = False
    has_own_names: bool = False
    split_files: Callable[[Sequence[Path]], Mapping[str, Path]] | None = None


def inputs_of_episodes(
    paths: Sequence[Path], stem: str, subset: str, beside: Callable[[Path], Iterable[Path]]
) -> Iterator[Input]:
    """Inputs of `EPISODES_PER_SHARD` episodes each, for a source with one main file per episode.

    `paths` are the main files of one subset in order, `stem` begins the names of the inputs, and `beside` returns the
    other files of an episode, such as its screens.
    """
    parts = [paths[start : start + EPISODES_PER_SHARD] for start in range(0, len(paths), EPISODES_PER_SHARD)]
    for index, part in enumerate(parts):
        files = [file for path in part for file in (path, *beside(path))]
        yield Input.of(f"{stem}-{index:05d}-of-{len(parts):05d}", subset, files)


def main_files(input_: Input, files: HashedFiles, is_data: Callable[[Path], bool]) -> Iterator[Path]:
    """The main file of each episode of an input, after hashing it. The episode's other files are hashed in turn."""
    for path in input_.files:
        with files.open(path) as file:
            file.read_rest()
        if is_data(path):
            yield path
