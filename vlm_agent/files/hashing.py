"""Files that are hashed while they are read."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_CHUNK = 1 << 20


class HashedFile:
    """Reads a file and updates `digest` with every byte once, in order, also where a byte is read twice."""

    def __init__(self, file: BinaryIO, digest: "hashlib._Hash") -> None:
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

    def readinto(self, buffer: memoryview) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int) -> int:
        """Raises ValueError for an offset beyond what was read: the digest would lack the bytes between."""
        if offset > self.hashed:
            raise ValueError(f"cannot seek to byte {offset}: only {self.hashed} were read")
        return self._file.seek(offset)

    def tell(self) -> int:
        return self._file.tell()

    def read_rest(self) -> None:
        """Reads what was not read yet, such as the bytes after damage, so that the digest covers the whole file."""
        self._file.seek(self.hashed)
        while self.read(_CHUNK):
            pass


class HashedFiles:
    """One SHA-256 over several files, read one after the other."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._done = 0
        self._current: HashedFile | None = None

    @property
    def position(self) -> int:
        """Bytes read so far, of all files."""
        return self._done + (self._current.hashed if self._current else 0)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    @contextmanager
    def open(self, path: Path) -> Iterator[HashedFile]:
        with path.open("rb") as file:
            self._current = HashedFile(file, self._digest)
            yield self._current
            self._current.read_rest()
        self._done, self._current = self.position, None
