"""The phone's files, kept in memory, and adb's `sync:` service to push and pull them.

It supports version 1 of the requests: STAT, LIST, SEND, RECV, QUIT (AOSP, `packages/modules/adb/SYNC.TXT`).
"""

import stat
import struct
import threading
import time
from dataclasses import dataclass, field

FOLDERS = ("/", "/data", "/data/local", "/data/local/tmp", "/sdcard")
MAX_BYTES = 64 << 20

_PIECE = 64 * 1024
_WORD = struct.Struct("<4sI")


@dataclass(frozen=True)
class File:
    """`mode`: type and permissions as in `os.stat`. `time`: last modification, in seconds since the epoch."""

    mode: int
    time: int
    data: bytes


class Files(dict[str, File]):
    """Path → file. The files have at most `MAX_BYTES` together."""

    def put(self, path: str, data: bytes, mode: int = 0o644, seconds: int | None = None) -> None:
        """Writes a file with modification time `seconds` (now if None). Raises OSError if `MAX_BYTES` is exceeded."""
        others = sum(len(file.data) for name, file in self.items() if name != path)
        if others + len(data) > MAX_BYTES:
            raise OSError(f"{path}: no space left on device")
        self[path] = File(stat.S_IFREG | (mode & 0o777), int(time.time()) if seconds is None else seconds, data)

    def about(self, path: str) -> tuple[int, int, int]:
        """(mode, size, time), all zero for a path that does not exist."""
        path = path.rstrip("/") or "/"
        if path in self:
            return self[path].mode, len(self[path].data), self[path].time
        is_folder = path in FOLDERS or any(name.startswith(path + "/") for name in self)
        return (stat.S_IFDIR | 0o755, 0, 1) if is_folder else (0, 0, 0)

    def within(self, folder: str) -> list[str]:
        """The names directly in a folder."""
        start = folder.rstrip("/") + "/"
        names = {path[len(start) :].partition("/")[0] for path in (*self, *FOLDERS) if path.startswith(start)}
        return sorted(names - {""})


@dataclass
class _IncomingFile:
    """A file whose data the client is sending."""

    path: str
    mode: int
    data: bytearray = field(default_factory=bytearray)


class SyncService:
    """The service `sync:`: a stream of requests to read and write files."""

    def __init__(self, files: Files, lock: threading.RLock) -> None:
        self.finished = False
        self._files, self._lock = files, lock
        self._buffer = b""
        self._receiving: _IncomingFile | None = None

    def start(self) -> bytes:
        return b""

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
            return self._receive(self._receiving, body)
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
            self._receiving = _IncomingFile(name, int(mode) if mode.isdecimal() else 0o644)
            return b""
        self.finished = True
        return b"" if request == b"QUIT" else self._fail(f"{request!r} is not offered")

    def _receive(self, file: _IncomingFile, body: bytes) -> bytes:
        file.data.extend(body)
        return self._fail("no space left on device") if len(file.data) > MAX_BYTES else b""

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
        if path not in self._files:
            return _WORD.pack(b"FAIL", len(text := b"No such file or directory")) + text
        data = self._files[path].data
        pieces = [data[start : start + _PIECE] for start in range(0, len(data), _PIECE)]
        return b"".join(_WORD.pack(b"DATA", len(piece)) + piece for piece in pieces) + _WORD.pack(b"DONE", 0)

    def _fail(self, reason: str) -> bytes:
        self.finished = True
        text = reason.encode()
        return _WORD.pack(b"FAIL", len(text)) + text
