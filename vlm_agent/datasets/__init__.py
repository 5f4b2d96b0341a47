"""Data sets: one file a source, and the shards, splits and statistics that every source shares."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".partial"
"""How the temporary names of `written_whole` end."""


class DatasetError(ValueError):
    """Data, or the way it was asked for, is wrong; the message is for the person at the terminal."""


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; it becomes `path` only when the block ends well.

    Whoever looks at `path` sees the old file or the whole new one, never a part, even after a power cut. The temporary
    name starts with a dot, so that a folder scan does not take it for data, and is another one each time, so that two
    processes that write the same file do not meet.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
