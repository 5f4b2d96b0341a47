"""Files and folders: atomic writes, JSON, locks, hashes."""

import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from vlm_agent.errors import DatasetError

PARTIAL = ".partial"
"""The suffix of temporary names."""


def _umask() -> int:
    """The process's umask, which can only be read by setting it: once, before there are threads."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


_UMASK = _umask()


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to, renamed to `path` when the block ends without an error.

    A reader of `path` sees the old file or the complete new one, even after a power cut. The temporary name starts
    with a dot, so that a scan of the folder does not take it for data, and is random, so that two processes can write
    the same file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        yield temporary
        share_as_created(temporary)
        sync(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A new folder beside `path`, renamed to `path` when the block ends without an error, and removed otherwise.

    `path` may not exist yet, or be an empty folder, or a link to one of both. What a killed process left under the
    temporary name is removed. A block that ends with an error may have renamed the folder before, to keep it.

    Raises DatasetError if `path` holds anything, or another process writes the same folder.
    """
    path = path.resolve() if path.is_symlink() else path
    temporary = path.with_name(f".{path.name}{PARTIAL}")
    refusal = f"another process writes {path}; wait for it, or choose another folder"
    lock = path.with_name(f".{path.name}.lock")
    with file_lock(lock, refusal) as held:
        if not os.fstat(held.fileno()).st_nlink:  # its owner has just ended and removed it
            raise DatasetError(refusal)
        try:
            if not is_free(path):
                raise DatasetError(f"{path} exists and is not an empty folder; choose another folder")
            with _renamed_to(path, temporary):
                yield temporary
        finally:
            lock.unlink(missing_ok=True)
    sync(path.parent)


@contextmanager
def _renamed_to(path: Path, temporary: Path) -> Iterator[None]:
    if temporary.exists():
        shutil.rmtree(temporary)
    temporary.mkdir(parents=True)
    try:
        yield
        for inside in (*temporary.rglob("*"), temporary):
            sync(inside)
        temporary.replace(path)
    except BaseException:
        if temporary.exists():
            shutil.rmtree(temporary)
        raise


def share_as_created(file: Path) -> None:
    """Gives a file the permissions of the process's umask. Safetensors creates files that only their owner can read."""
    file.chmod(0o666 & ~_UMASK)


def is_free(folder: Path) -> bool:
    """Whether `folder` does not exist or is an empty folder."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def sync(path: Path) -> None:
    """Makes the content of a file durable, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def version_of(path: Path) -> tuple[int, ...]:
    """What changes when a file does: its inode, size, time of content and time of inode. With the path, the key of a
    cache of what a file holds."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def write_json(path: Path, content: object) -> None:
    """Writes a JSON file atomically, indented by one space."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path, remedy: str) -> Any:
    """The content of a JSON file; DatasetError with what to do, `remedy`, where it is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DatasetError(f"{path} is damaged ({error}); {remedy}") from None


@contextmanager
def file_lock(
    path: Path,
    refusal: str,
    shared: bool = False,
    owner: str | None = None,
    wait: Callable[[str], None] | None = None,
) -> Iterator[TextIO]:
    """Holds a lock file, exclusively or `shared`; the kernel releases it when the process ends. Yields the open file.

    A forked child, such as a worker of a DataLoader, closes it: it may outlive a killed parent by seconds.

    `owner`: who holds it, written into the file, and removed from it at the end of the block. A name in a file that no
    process holds is therefore that of a killed one (`read_lock`).

    When another process holds it: raises DatasetError with the message `refusal`, and the owner where one is known; or,
    with `wait`, calls it with that message and waits for the lock.

    Locks reach across machines only on file systems that support them (NFS 4, Lustre mounted with `flock`).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip()
            message = f"{refusal} ({holder})" if holder else refusal
            if wait is None:
                raise DatasetError(message) from None
            wait(message)
            fcntl.flock(file, kind)
        file.truncate(0)
        if owner is not None:
            file.write(owner)
            file.flush()
        _held.append(file)
        try:
            yield file
        finally:
            _held.remove(file)
            if owner is not None and not file.closed:
                file.truncate(0)


def read_lock(path: Path) -> tuple[bool, str] | None:
    """(whether a process holds the lock file now, its owner, or the killed one that held it last).

    The owner is empty if the last one released the lock. None without such a file. Raises OSError where the file
    system has no locks.
    """
    try:
        file = path.open(encoding="utf-8")
    except FileNotFoundError:
        return None
    with file:
        is_held = False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            is_held = True
        return is_held, file.read().strip()


_held: list[TextIO] = []
"""Lock files of this process."""


def _close_in_child() -> None:
    for file in _held:
        file.close()


os.register_at_fork(after_in_child=_close_in_child)


def remove_partials(folder: Path) -> None:
    """Removes the temporary files of killed processes (`atomic_write`). The caller must hold the folder exclusively."""
    for path in folder.rglob(f".*{PARTIAL}"):
        path.unlink(missing_ok=True)


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


def sha256_of(paths: list[Path] | tuple[Path, ...]) -> str:
    """The SHA-256 of the files' concatenated content, in hexadecimal."""
    files = HashedFiles()
    for path in paths:
        with files.open(path) as file:
            file.read_rest()
    return files.hexdigest()
