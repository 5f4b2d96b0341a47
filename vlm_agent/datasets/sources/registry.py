"""The registered sources, and the search for their files."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from vlm_agent.datasets.sources import Input, Source, aitw, aitz, androidcontrol, checks, gui_odyssey, traces
from vlm_agent.errors import DatasetError
from vlm_agent.settings import Registry

SOURCES: Registry[Source] = Registry(
    "vlm_agent.sources",
    {
        source.name: source
        for source in (aitw.SOURCE, aitz.SOURCE, androidcontrol.SOURCE, gui_odyssey.SOURCE, traces.SOURCE)
    },
    instance_of=Source,
)
"""Source by name, the value of `--source`."""


def find_source(name: str) -> Source:
    """The source of this name. Raises DatasetError listing the registered sources if it is unknown."""
    if name not in SOURCES:
        raise DatasetError(f"source {name!r} is unknown; choose one of {', '.join(SOURCES)}")
    return SOURCES[name]


def find_inputs(source: Source, paths: Sequence[Path]) -> list[Input]:
    """The inputs in `paths`: files, and folders that are searched for files of the source. Each file counts once.

    The files of the inputs are absolute paths.

    Raises DatasetError for a path that does not exist, a folder without data, a file whose subset cannot be determined,
    a subset that cannot be the name of a folder, a name that is not UTF-8, files of another source, two inputs with the
    same shard, and a path that is not a file; OSError for a folder that may not be read.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        for file in _files(source, path):
            found.setdefault(file.resolve(), file.absolute())
    if not found:
        raise DatasetError("no inputs; name files to convert, or folders that contain them")
    inputs = source.inputs(list(found.values()))
    by_shard: dict[str, Input] = {}
    for input_ in inputs:
        checks.check_subset(input_.subset, str(input_.files[0]))
        checks.unicode_of(input_.shard, f"the name of the shard of {input_.files[0]}")
        if input_.shard in by_shard:
            both = f"{by_shard[input_.shard].files[0]} and {input_.files[0]}"
            raise DatasetError(f"{both} would both become {input_.shard}; rename one of them")
        by_shard[input_.shard] = input_
    return inputs


def split_file(source: Source, paths: Sequence[Path], name: str) -> Path:
    """The split file of this name that comes with the data. Raises DatasetError listing the names if it is unknown."""
    if source.split_files is None:
        raise DatasetError(f"source {source.name} has no named splits; use --splits FILE")
    found = source.split_files(paths)
    if name not in found:
        raise DatasetError(f"split {name!r} is unknown; {', '.join(map(str, paths))} has {', '.join(found) or 'none'}")
    return found[name]


def _files(source: Source, path: Path) -> list[Path]:
    if not path.exists():
        raise DatasetError(f"{path} does not exist")
    all_files = sorted(_walk(path)) if path.is_dir() else [path]
    files = [file for file in all_files if source.is_data(file)] if path.is_dir() else all_files
    for other in SOURCES.values():
        if other is not source and other.has_own_names and any(map(other.is_data, files or all_files)):
            raise DatasetError(f"{path} is not of source {source.name}: use --source {other.name}")
    if not files:
        raise DatasetError(f"{path} contains no file of source {source.name} (such as {source.example})")
    for file in files:
        if not file.is_file():
            raise DatasetError(f"{file} is not a file, or a link to a file that does not exist")
    return files


def _walk(folder: Path) -> Iterator[Path]:
    """All files below a folder but hidden ones: what a killed process left of an `atomic_folder` is hidden. Unlike
    `rglob`, follows links to folders and raises OSError for unreadable folders."""
    visited = set()
    for parent, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
        real = os.path.realpath(parent)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders[:] = (name for name in folders if not name.startswith("."))
        yield from (Path(parent, name) for name in names if not name.startswith("."))


def _raise(error: OSError) -> None:
    raise error
