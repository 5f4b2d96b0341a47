"""The kinds of data set that can be converted, and how their files are dealt out to shards."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vlm_agent.datasets import DatasetError, aitw, aitz, traces
from vlm_agent.datasets.convert.hashed_file import HashedFiles
from vlm_agent.datasets.episode_steps import BadRecord, EpisodeStep

EPISODES_A_SHARD = 200
"""AitZ has a file an episode, traces a folder; as many shards would be slow to open."""


@dataclass(frozen=True)
class Input:
    """What becomes one shard: `files` of one subset, under the name that the manifest gives them."""

    name: str
    subset: str
    shard: str
    files: tuple[Path, ...]

    def size(self) -> int:
        """Bytes of its files."""
        return sum(path.stat().st_size for path in self.files)


@dataclass(frozen=True)
class Source:
    """How a kind of data set is read: which files of a folder are its own, which of them go into one shard, and what
    is in them. `read` opens the files of an input through a HashedFiles."""

    is_data: Callable[[Path], bool]
    deal: Callable[[Sequence[Path]], list[Input]]
    read: Callable[[Input, HashedFiles], Iterator[EpisodeStep | BadRecord]]
    example_name: str


def _deal_aitw(paths: Sequence[Path]) -> list[Input]:
    inputs = []
    for path in paths:
        subset = aitw.subset_of(path)
        inputs.append(Input(path.name, subset, f"{subset}/{path.name}.parquet", (path,)))
    return inputs


def _read_aitw(given: Input, files: HashedFiles) -> Iterator[EpisodeStep | BadRecord]:
    (path,) = given.files
    with files.open(path) as file:
        yield from aitw.read_steps(path, given.subset, file)


def _deal_aitz(paths: Sequence[Path]) -> list[Input]:
    """Episodes of one split and subset together, in the order of their names."""
    heaps: dict[tuple[str | None, str], list[Path]] = {}
    for path in paths:
        heaps.setdefault((aitz.split_of(path), aitz.subset_of(path)), []).append(path)
    inputs = []
    for (split, subset), heap in heaps.items():
        heap.sort(key=lambda path: path.name)
        stem = subset if split is None else f"{split}-{subset}"
        inputs += _in_shards(heap, stem, subset, lambda path: sorted(path.parent.glob(f"{path.stem}_*.png")))
    return inputs


def _deal_traces(paths: Sequence[Path]) -> list[Input]:
    """Traces of one subset together, in the order of their folders' names."""
    heaps: dict[str, list[Path]] = {}
    for path in sorted(paths, key=lambda path: (path.parent.name, path)):
        heaps.setdefault(traces.subset_of(path), []).append(path)
    inputs = []
    for subset, heap in heaps.items():
        inputs += _in_shards(heap, subset, subset, traces.files_beside)
    return inputs


def _in_shards(heap: list[Path], stem: str, subset: str, beside: Callable[[Path], Sequence[Path]]) -> Iterator[Input]:
    """So many episodes to a shard; `beside`: the files that belong to the one that is an episode's own."""
    parts = [heap[at : at + EPISODES_A_SHARD] for at in range(0, len(heap), EPISODES_A_SHARD)]
    for index, part in enumerate(parts):
        name = f"{stem}-{index:05d}-of-{len(parts):05d}"
        files = tuple(file for path in part for file in (path, *beside(path)))
        yield Input(name, subset, f"{subset}/{name}.parquet", files)


def _read_aitz(given: Input, files: HashedFiles) -> Iterator[EpisodeStep | BadRecord]:
    for path in _hashed(given, files, aitz.is_data):
        yield from aitz.read_steps(path)


def _read_traces(given: Input, files: HashedFiles) -> Iterator[EpisodeStep | BadRecord]:
    for path in _hashed(given, files, traces.is_data):
        yield from traces.read_steps(path.parent)


def _hashed(given: Input, files: HashedFiles, is_data: Callable[[Path], bool]) -> Iterator[Path]:
    """Each file that is an episode's own, when it has been read for the digest; so have those beside it, in turn."""
    for path in given.files:
        with files.open(path) as file:
            file.exhaust()
        if is_data(path):
            yield path


SOURCES = {
    "aitw": Source(aitw.is_data, _deal_aitw, _read_aitw, "google_apps-00000-of-00001"),
    "aitz": Source(aitz.is_data, _deal_aitz, _read_aitz, "GOOGLE_APPS-523638528775825151.json"),
    "trace": Source(traces.is_data, _deal_traces, _read_traces, traces.HEADING),
}


def find(source: str, inputs: Sequence[Path]) -> list[Input]:
    """What will become shards: the files named, and of a folder those that look like the source's, each once; their
    paths are absolute.

    Raises DatasetError for an unknown source, a path that does not exist, a folder without data, a file that does not
    tell its subset, two files that would become the same shard, or one that is no file; OSError for a folder that may
    not be read.
    """
    if source not in SOURCES:
        raise DatasetError(f"source {source!r} is unknown; there are {', '.join(SOURCES)}")
    kind = SOURCES[source]
    found: dict[Path, Path] = {}
    for path in inputs:
        for file in _files(kind, path):
            found.setdefault(file.resolve(), file.absolute())
    if not found:
        raise DatasetError("no input was given")
    dealt = kind.deal(list(found.values()))
    owners: dict[str, Input] = {}
    for given in dealt:
        if given.shard in owners:
            both = f"{owners[given.shard].files[0]} and {given.files[0]}"
            raise DatasetError(f"{both} would both become {given.shard}; rename one of them")
        owners[given.shard] = given
    return dealt


def _files(kind: Source, path: Path) -> list[Path]:
    if not path.exists():
        raise DatasetError(f"{path} does not exist")
    files = sorted(file for file in _walk(path) if kind.is_data(file)) if path.is_dir() else [path]
    if not files:
        raise DatasetError(f"the folder {path} holds no file of this source (named like {kind.example_name})")
    for file in files:
        if not file.is_file():
            raise DatasetError(f"{file} is no file, or a link to one that is not there")
    return files


def _walk(folder: Path) -> Iterator[Path]:
    """Not `rglob`, which passes over folders that it may not read or that are links, and says nothing."""
    seen = set()
    for parent, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
        real = os.path.realpath(parent)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(parent, name) for name in names if not name.startswith("."))


def _raise(error: OSError) -> None:
    raise error
