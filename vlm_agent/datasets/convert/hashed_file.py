"""Files that are hashed while they are read, so that no file of terabytes is read twice."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_CHUNK = 1 << 20


class HashedFile:
    """Reads a file; every byte goes into `digest` once and in order, whatever is read again."""

    def __init__(self, file: BinaryIO, digest: "hashlib._Hash"):
        self._file, self._digest = file, digest
        self.hashed = 0

    def read(self, count: int = -1) -> bytes:
        start = self._file.tell()
        data = self._file.read(count)
        fresh = start + len(data) - self.hashed
        if fresh > 0:
            self._digest.update(memoryview(data)[len(data) - fresh :])
            self.hashed += fresh
        return data

    def readinto(self, buffer) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int) -> int:
        """Raises ValueError for a place beyond what was read: those bytes would be missing from the digest."""
        if offset > self.hashed:
            raise ValueError(f"cannot go on to byte {offset}: only {self.hashed} were read")
        return self._file.seek(offset)

    def tell(self) -> int:
        return self._file.tell()

    def exhaust(self) -> None:
        """Reads what nobody has read, such as what lies behind damage."""
        self._file.seek(self.hashed)
        while self.read(_CHUNK):
            pass


class HashedFiles:
    """The files of one input, one after the other under one SHA-256."""

    def __init__(self):
        self._digest = hashlib.sha256()
        self._done = 0
        self._current: HashedFile | None = None

    @property
    def position(self) -> int:
        """Bytes read so far, over all files."""
        return self._done + (self._current.hashed if self._current else 0)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    @contextmanager
    def open(self, path: Path) -> Iterator[HashedFile]:
        with path.open("rb") as file:
            self._current = HashedFile(file, self._digest)
            yield self._current
            self._current.exhaust()
        self._done, self._current = self.position, None


def sha256_of(paths: list[Path] | tuple[Path, ...]) -> str:
    """The digest of files that nothing else reads."""
    files = HashedFiles()
    for path in paths:
        with files.open(path) as file:
            file.exhaust()
    return files.hexdigest()
