"""The phone's files, kept in memory, and adb's `sync:` service to push and pull them.

It supports version 1 of the requests: STAT, LIST, SEND, RECV, QUIT (AOSP, `packages/modules/adb/SYNC.TXT`).
"""

import posixpath
import stat
import struct
import threading
import time
from dataclasses import dataclass, field

from vlm_agent.simulator.adb_daemon.connection import Service

FOLDERS = ("/", "/data", "/data/local", "/data/local/tmp", "/dev", "/sdcard", "/system", "/system/bin")

WRITABLE = ("/data/local/tmp", "/sdcard")
"""The folders in which adb's user may create files."""

_SHARED_STORAGE = ("/storage/emulated/0", "/storage/self/primary", "/mnt/sdcard")
"""Other paths of /sdcard."""

MAX_BYTES = 64 << 20

_LONGEST_NAME, _LONGEST_PATH = 255, 4096
"""In bytes, as on Android."""

_PIECE = 64 * 1024
_WORD = struct.Struct("<4sI")


@dataclass(frozen=True)
class File:
    """`mode`: type and permissions as in `os.stat`. `time`: last modification, in seconds since the epoch."""

    mode: int
    time: int
    data: bytes


class Files(dict[str, File]):
    """Path → file. The files have at most `MAX_BYTES` together. `folders` can be empty; their paths are absolute.

    Methods accept any path of a phone: relative to `/`, with `..`, or with another name of /sdcard.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folders = set(FOLDERS)

    def place(self, path: str) -> str:
        """The absolute path that files and folders are stored under."""
        place = posixpath.normpath("/" + path.lstrip("/"))
        for folder in _SHARED_STORAGE:
            if place == folder or place.startswith(folder + "/"):
                return "/sdcard" + place[len(folder) :]
        return place

    def put(self, path: str, data: bytes, mode: int = 0o644, seconds: int | None = None) -> None:
        """Writes a file with modification time `seconds` (now if None), and the folders above it.

        Raises OSError for a folder, where adb's user may not write, if `MAX_BYTES` is exceeded or the name is too long.
        """
        self.check_length(path)
        place = self.place(path)
        if self.is_folder(path):
            raise OSError(f"{path}: Is a directory")
        self._check_permission(path)
        others = sum(len(file.data) for name, file in self.items() if name != place)
        if others + len(data) > MAX_BYTES:
            raise OSError(f"{path}: no space left on device")
        self[place] = File(stat.S_IFREG | (mode & 0o777), int(time.time()) if seconds is None else seconds, data)

    def write(self, path: str, data: bytes) -> None:
        """Writes a file as a program on the phone: raises OSError if its folder does not exist, too."""
        self._check_parent(path)
        self.put(path, data)

    def read(self, path: str) -> bytes:
        """Raises OSError for a path that is not a file."""
        place = self.place(path)
        if place == "/dev/null":
            return b""
        if place not in self:
            raise OSError(f"{path}: {'Is a directory' if self.is_folder(path) else 'No such file or directory'}")
        return self[place].data

    def is_file(self, path: str) -> bool:
        return self.place(path) in self

    def is_folder(self, path: str) -> bool:
        return stat.S_ISDIR(self.about(path)[0])

    def make_folder(self, path: str) -> None:
        """Raises OSError if it exists, if its parent does not, or where adb's user may not write."""
        if self.about(path)[0]:
            raise OSError(f"{path}: File exists")
        self.check_length(path)
        self._check_parent(path)
        self._check_permission(path)
        self.folders.add(self.place(path))

    def remove(self, path: str) -> None:
        """Removes a file, or a folder with its content. Raises OSError if it is absent or not adb's to remove."""
        place = self.place(path)
        if not self.about(path)[0]:
            raise OSError(f"{path}: No such file or directory")
        if place in FOLDERS:
            raise OSError(f"{path}: Permission denied")
        self.folders = {name for name in self.folders if name != place and not name.startswith(place + "/")}
        for name in [name for name in self if name == place or name.startswith(place + "/")]:
            del self[name]

    def about(self, path: str) -> tuple[int, int, int]:
        """(mode, size, time), all zero for a path that does not exist."""
        place = self.place(path)
        if place in self:
            return self[place].mode, len(self[place].data), self[place].time
        is_folder = place in self.folders or any(name.startswith(place + "/") for name in self)
        return (stat.S_IFDIR | 0o755, 0, 1) if is_folder else (0, 0, 0)

    def within(self, folder: str) -> list[str]:
        """The names directly in a folder."""
        start = self.place(folder).rstrip("/") + "/"
        names = {path[len(start) :].partition("/")[0] for path in (*self, *self.folders) if path.startswith(start)}
        return sorted(names - {""})

    def check_length(self, path: str) -> None:
        """Raises OSError if a path or a name in it is too long for a file system."""
        raw_path = path.encode()
        if len(raw_path) > _LONGEST_PATH or any(len(name) > _LONGEST_NAME for name in raw_path.split(b"/")):
            raise OSError(f"{path[:_LONGEST_NAME]}…: File name too long")

    def _check_parent(self, path: str) -> None:
        if not self.is_folder(posixpath.dirname(self.place(path))):
            raise OSError(f"{path}: No such file or directory")

    def _check_permission(self, path: str) -> None:
        parent = posixpath.dirname(self.place(path))
        if not any(parent == folder or parent.startswith(folder + "/") for folder in WRITABLE):
            raise OSError(f"{path}: Permission denied")


@dataclass
class _IncomingFile:
    """A file whose data the client is sending."""

    path: str
    mode: int
    data: bytearray = field(default_factory=bytearray)


class SyncService(Service):
    """The service `sync:`: a stream of requests to read and write files."""

    def __init__(self, files: Files, lock: threading.RLock) -> None:
        self._files, self._lock = files, lock
        self._buffer = b""
        self._receiving: _IncomingFile | None = None

    def take(self, data: bytes) -> bytes:
        self._buffer += data
        answer = b""
        while not self.finished and len(self._buffer) >= _WORD.size:
            request, number = _WORD.unpack_from(self._buffer)
            size = 0 if request in (b"DONE", b"QUIT") else number
            if size > MAX_BYTES:
                return answer + self._fail("the request is too long")
            if len(self._buffer) < _WORD.size + size:
                break
            body = self._buffer[_WORD.size : _WORD.size + size]
            self._buffer = self._buffer[_WORD.size + size :]
            with self._lock:
                answer += self._answer(request, number, body)
        return answer

    def _answer(self, request: bytes, number: int, body: bytes) -> bytes:
        if request == b"DATA" and self._receiving is not None:
            self._receiving.data.extend(body)
            return self._fail("no space left on device") if len(self._receiving.data) > MAX_BYTES else b""
        if request == b"DONE" and self._receiving is not None:
            return self._keep(self._receiving, number)
        path = body.decode(errors="replace")
        if request == b"STAT":
            return b"STAT" + struct.pack("<3I", *self._files.about(path))
        if request == b"LIST":
            return b"".join(self._entry(path, name) for name in self._files.within(path)) + b"DONE" + bytes(16)
        if request == b"RECV":
            return self._send(path)
        if request == b"SEND":
            name, _, mode = path.rpartition(",")
            self._receiving = _IncomingFile(name, int(mode) if mode.isdecimal() and len(mode) < 8 else 0o644)
            return b""
        self.finished = True
        return b"" if request == b"QUIT" else self._fail(f"{request!r} is not offered")

    def _keep(self, file: _IncomingFile, seconds: int) -> bytes:
        self._receiving = None
        try:
            self._files.put(file.path, bytes(file.data), file.mode, seconds)
        except OSError as error:
            return self._fail(str(error))
        return _WORD.pack(b"OKAY", 0)

    def _entry(self, folder: str, name: str) -> bytes:
        mode, size, seconds = self._files.about(f"{folder.rstrip('/')}/{name}")
        raw_name = name.encode()
        return b"DENT" + struct.pack("<4I", mode, size, seconds, len(raw_name)) + raw_name

    def _send(self, path: str) -> bytes:
        if not self._files.is_file(path):
            return _WORD.pack(b"FAIL", len(text := b"No such file or directory")) + text
        data = self._files.read(path)
        pieces = [data[start : start + _PIECE] for start in range(0, len(data), _PIECE)]
        return b"".join(_WORD.pack(b"DATA", len(piece)) + piece for piece in pieces) + _WORD.pack(b"DONE", 0)

    def _fail(self, reason: str) -> bytes:
        self.finished = True
        text = reason.encode()
        return _WORD.pack(b"FAIL", len(text)) + text
