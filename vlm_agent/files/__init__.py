"""Files and folders: atomic writes, locks, hashes, and JSON files whose damage is noticed.

A checked JSON file records the SHA-256 of its content, and a reader compares it. Its first key is `checksum`, on a line
of its own:

    {
     "checksum": "sha256:7f83b1657ff1fc53b92dc18148a1d65dfc2d4b1fa3d677284addd200126d9069",
     "episodes": 12
    }

It is the SHA-256 of the file without this line. Other files refer to one by that digest (`content_of`). A user who
edits a file removes the line, and other programs write none; such files are read without the check.
"""

import errno
import fcntl
import glob
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TextIO
from weakref import WeakSet

from pydantic import TypeAdapter, ValidationError

from vlm_agent.errors import DatasetError, remedy_of_missing

PARTIAL = ".partial"
"""The suffix of temporary names."""

CHECKSUM = "checksum"
"""The first key of a checked file."""

_LINE = re.compile(rb'\A\{\n +"checksum": "sha256:([0-9a-f]{64})",\n')
_OPENING = b"{\n"

_TRACES = (b'"checksum"', b"sha256:")
_HEAD = 256
"""A line that is damaged itself leaves one of `_TRACES` in so many bytes at the start, or most of its digits."""

_LINE_LENGTH, _DIGITS = 110, 56

_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""Pydantic's parser refuses a lone one, which `json` accepts."""


_UMASK = os.umask(0o077)
"""The process's umask, which can only be read by setting it: once, before there are threads."""
os.umask(_UMASK)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to, renamed to `path` when the block ends without an error.

    A reader of `path` sees the old file or the complete new one, even after a power cut. The temporary name has a dot
    for scans of the folder, which take it for no data, and is random for two processes that write the same file.
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
        # Its owner has just ended and removed it; or without locks, may still write.
        if not os.fstat(held.fileno()).st_nlink:
            raise DatasetError(refusal)
        if held in UNLOCKED and temporary.exists():
            raise DatasetError(f"{refusal}; if none does, remove {temporary}")
        try:
            if not is_free(path):
                raise DatasetError(f"{path} exists and is not an empty folder; choose another folder")
            if temporary.exists():
                shutil.rmtree(temporary)
            temporary.mkdir(parents=True)
            yield temporary
            for inside in (*temporary.rglob("*"), temporary):
                sync(inside)
            temporary.replace(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)  # after an error; otherwise it is renamed
            lock.unlink(missing_ok=True)
    sync(path.parent)


def share_as_created(file: Path) -> None:
    """Gives a file the permissions of the process's umask. Safetensors creates files that only their owner can read."""
    with suppress(PermissionError):  # of a network mount whose files belong to one other user
        file.chmod(0o666 & ~_UMASK)


def is_free(folder: Path) -> bool:
    """Whether `folder` does not exist or is an empty folder."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def sync(path: Path) -> None:
    """Makes the content of a file durable, or the names in a folder, where the file system can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL or not path.is_dir():  # of network file systems that cannot sync a folder
            raise
    finally:
        os.close(descriptor)


def version_of(path: Path) -> tuple[int, ...]:
    """What changes when a file does: its inode, size, time of content and time of inode. With the path, the key of a
    cache of what a file holds."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
"""The errors of a lock on a file system that has none."""


@contextmanager
def file_lock(
    path: Path, refusal: str, shared: bool = False, owner: str | None = None, wait: Callable[[str], None] | None = None
) -> Iterator[TextIO]:
    """Holds a lock file, exclusively or `shared`, until the block or the process ends. Yields the open file, which a
    forked child closes: a worker of a DataLoader may outlive a killed parent by seconds.

    `owner`: who holds it, in the file until the block ends: a name in a file that no process holds is that of a killed
    one (`read_lock`). When another process holds it: raises DatasetError with the message `refusal`, and the owner
    where one is known; or, with `wait`, calls it with that message and waits.

    Locks reach across machines on NFS 4, and on Lustre mounted with `flock`. Without any, a warning is logged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            message = f"{refusal} ({holder})" if (holder := file.read().strip()) else refusal
            if wait is None:
                raise DatasetError(message) from None
            wait(message)
            fcntl.flock(file, kind)
        except OSError as error:
            _warn_without_locks(file, path, error)
        file.truncate(0)
        file.write(owner or "")
        file.flush()
        _held.append(file)
        try:
            yield file
        finally:
            _held.remove(file)
            if owner is not None and not file.closed:
                file.truncate(0)


UNLOCKED = WeakSet[TextIO]()
"""Files of `file_lock` on file systems without locks: another process may hold them too, so nothing is removed."""


def _warn_without_locks(file: TextIO, path: Path, error: OSError) -> None:
    if error.errno not in WITHOUT_LOCKS:
        raise error
    UNLOCKED.add(file)
    words = "%s: the file system has no locks (%s); make sure that no other process writes here"
    logging.getLogger(__name__).warning(words, path.parent, error.strerror)


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
    """Removes the temporary files of killed processes (`atomic_write`). The caller must hold the folder exclusively.

    Temporary folders stay: the next `atomic_folder` of the same path removes them, under its lock.
    """
    for path in folder.rglob(f".*{PARTIAL}"):
        if not path.is_dir():
            path.unlink(missing_ok=True)


def remove_stale(path: Path) -> None:
    """Removes what killed processes left of `path` (`atomic_write`): a task of a job array never has the folder to
    itself. A task that Slurm believes dead may still write."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL}"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _STALE:
                left.unlink()


_STALE = 3600
"""Seconds without a write, after which a partial file belongs to a killed process."""


def sha256_of(paths: list[Path] | tuple[Path, ...]) -> str:
    """The SHA-256 of the files' concatenated content, in hexadecimal."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)  # updates the digest of the files before
    return digest.hexdigest()


# JSON.


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


def write_checked(path: Path, content: Mapping[str, Any], indent: int = 1) -> None:
    """Writes a JSON object with its checksum, atomically. An empty one has no checksum."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(checked_bytes(content, indent))


def write_once(path: Path, content: Mapping[str, Any]) -> bool:
    """`write_checked`, unless `path` exists; whether it was written. Of processes that write at once, the first
    succeeds, also where a network file system shows its file late; without hard links, the last."""
    try:
        with atomic_write(path) as temporary:
            temporary.write_bytes(checked_bytes(content))
            sync(temporary)
            try:
                os.link(temporary, path)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                    raise
    except FileExistsError:
        return False
    temporary.unlink(missing_ok=True)  # a rename between two names of one file keeps both
    return True


def checked_bytes(content: Mapping[str, Any], indent: int = 1) -> bytes:
    """The content of the file that `write_checked` writes."""
    text = json.dumps(content, indent=indent, ensure_ascii=False) + "\n"
    plain = text.encode(errors="backslashreplace")  # a reply may hold a lone surrogate, which UTF-8 cannot
    if content:
        line = f'{" " * indent}"checksum": "sha256:{hashlib.sha256(plain).hexdigest()}",\n'
        plain = _OPENING + line.encode() + plain.removeprefix(_OPENING)
    return plain


def read_checked(path: Path, remedy: str, kind: Any = None) -> Any:
    """The object in a JSON file, without its checksum.

    `remedy`: what to do about damage, as the end of an error. `kind`: a type by which pydantic checks the object. Files
    without a checksum need it, because their content may be anything.

    Raises DatasetError naming the file where it is missing, damaged, edited or of another kind.
    """
    plain = content_of(path, remedy)
    try:
        content = json.loads(plain)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is damaged ({error}); {remedy}") from None
    if kind is not None:
        check_kind(plain, kind, path, remedy)
    return content


def check_kind(text: bytes, kind: Any, path: Path, remedy: str) -> None:
    """Raises DatasetError naming `path`, from which the JSON `text` is, if it is not of the type `kind`."""
    if (reason := kind_problem(text, kind)) is not None:
        raise DatasetError(f"{path} is damaged ({reason}); {remedy}")


def kind_problem(text: bytes, kind: Any) -> str | None:
    """Why the JSON `text` is not of the type `kind`: the first key that is wrong, and how; None if it is."""
    try:
        _adapter(kind).validate_json(_ESCAPED_SURROGATE.sub(rb"\\u0020", text), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
    return None


@contextmanager
def parsing(path: Path, remedy: str) -> Iterator[None]:
    """In the block, a key that the content of `path` lacks, or that holds something else, raises DatasetError naming
    the file. For content that is too varied for a `kind`. The block must only parse: a bug in it reads the same.
    """
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise DatasetError(f"{path} is damaged ({reason}); {remedy}") from None


def content_of(path: Path, remedy: str) -> bytes:
    """The bytes of a JSON file without the line of its checksum, which identify its content.

    Raises DatasetError naming the file where it is missing, or differs from its checksum.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing; {remedy_of_missing(remedy)}") from None
    line = _LINE.match(content)
    if line is None:
        if _has_traces(content):
            raise DatasetError(_difference(path, remedy))
        return content
    plain = _OPENING + content[line.end() :]
    if hashlib.sha256(plain).hexdigest().encode() != line[1]:
        raise DatasetError(_difference(path, remedy))
    return plain


def _has_traces(content: bytes) -> bool:
    """Whether a file whose first key is no checksum lost one. No file has a digest as the value of its first
    key."""
    first_key = content[len(_OPENING) : _LINE_LENGTH].partition(b"\n")[0] if content.startswith(_OPENING) else b""
    digits = sum(byte in b"0123456789abcdef" for byte in first_key)
    return digits >= _DIGITS or any(trace in content[:_HEAD] for trace in _TRACES)


def _difference(path: Path, remedy: str) -> str:
    return (
        f"{path} differs from its checksum: it is damaged, or was edited; {remedy}. To keep an edit, remove the line "
        '"checksum" from it'
    )


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
