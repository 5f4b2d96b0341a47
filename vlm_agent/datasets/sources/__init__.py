"""Sources: the data sets that `vlm-agent convert` reads. One file a source, and its entry in `registry.py`.

A source file defines `SOURCE`, a `Source`: its name, which files of a folder are its own, which of them go into one
shard, and how to read their steps. Nothing else in the package knows a source by name. What a source yields is in
`datasets/records.py`; `checks.py` has what sources share: JSON fields, PNG files, elements and size limits.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vlm_agent.datasets.records import BadRecord, EpisodeStep
from vlm_agent.files import HashedFiles

EPISODES_PER_SHARD = 200
"""For sources with a file or a folder for each episode: as many shards as episodes would be slow to open."""


@dataclass(frozen=True)
class Input:
    """What becomes one shard: `files` of one subset, main files and those beside them, such as screens.

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
    subsets: the names of its subsets, where the data set has fixed ones.
    example: the name of a file of this source, for the message about a folder without one.
    is_data: whether a file in a folder belongs to this source, by its name.
    inputs: divides the files that were found into inputs. An input has one subset: any name that a folder can have.
        Raises DatasetError for a file whose subset cannot be determined.
    read: yields the steps of an input in order, and a BadRecord for each record that is not usable. Opens every file
        through `HashedFiles.open`, so that the manifest has its SHA-256.

    The three functions are functions of a module, because worker processes import them by name.
    """

    name: str
    about: str
    example: str
    is_data: Callable[[Path], bool]
    inputs: Callable[[Sequence[Path]], list[Input]]
    read: Callable[[Input, HashedFiles], Iterator[EpisodeStep | BadRecord]]
    subsets: tuple[str, ...] = ()


def inputs_of_episodes(
    paths: Sequence[Path], stem: str, subset: str, beside: Callable[[Path], Iterable[Path]]
) -> Iterator[Input]:
    """Inputs of `EPISODES_PER_SHARD` episodes each, for a source with one main file an episode.

    `paths` are the main files of one subset in their order, `stem` begins the names of the inputs, and `beside` lists
    the other files of an episode, such as its screens.
    """
    parts = [paths[start : start + EPISODES_PER_SHARD] for start in range(0, len(paths), EPISODES_PER_SHARD)]
    for index, part in enumerate(parts):
        files = [file for path in part for file in (path, *beside(path))]
        yield Input.of(f"{stem}-{index:05d}-of-{len(parts):05d}", subset, files)


def main_files(input_: Input, files: HashedFiles, is_data: Callable[[Path], bool]) -> Iterator[Path]:
    """The main file of each episode of an input, after it was hashed. The files beside it are hashed in turn."""
    for path in input_.files:
        with files.open(path) as file:
            file.read_rest()
        if is_data(path):
            yield path
