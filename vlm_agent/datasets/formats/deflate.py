"""Deflate streams through ISA-L, several times faster than zlib: reproducible output, reading up to damaged bytes.

Writing: at the start of a stream, ISA-L up to 2.32.1 takes the match table's slot for the third byte from a register
that still holds the stream's address: `.write_first_byte` in `igzip_icf_body_h1_gr_bt.asm` shifts `tmp2`, which no
instruction has set. Bytes of that slot further on can then match at another distance. The output is valid, but a few
screens in ten thousand have other bytes in a process with other addresses. `Deflater` avoids that code by the size of
the first call. ISA-L leaves the last 288 bytes (`ISAL_LOOK_AHEAD`) for the next call, so it compresses one of 289, and
the next call computes every slot from the bytes.

Reading: an ISA-L call that finds damage discards its output up to there, which can be several records. At the
first damage `GzipStream` therefore inflates the file again with zlib, up to the damaged byte.
"""

import gzip
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from isal import igzip, isal_zlib

from vlm_agent.files import HashedFile

ZLIB, GZIP = 15, 31
"""Containers, as zlib's `wbits`."""

_FIRST_CALL_BYTES = 289
_CHUNK = 1 << 16
_DAMAGE: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, isal_zlib.error)  # type: ignore[assignment]  # isal's stub has an instance


class Deflater:
    """One stream at the fast level: `compress` all of it in pieces of any size, then `flush`."""

    def __init__(self, container: int = ZLIB) -> None:
        self._stream = isal_zlib.compressobj(1, isal_zlib.DEFLATED, container)
        self._head = bytearray()

    def compress(self, data: bytes | memoryview) -> bytes:
        """The output that is ready after `data`, which may be none."""
        missing = _FIRST_CALL_BYTES - len(self._head)
        if not missing:
            return self._stream.compress(data)
        self._head += data[:missing]
        if len(self._head) < _FIRST_CALL_BYTES:
            return b""
        return self._stream.compress(self._head) + self._stream.compress(data[missing:])

    def flush(self) -> bytes:
        """The rest of the output."""
        start = self._stream.compress(self._head) if len(self._head) < _FIRST_CALL_BYTES else b""
        return start + self._stream.flush()


class DamagedGzipError(Exception):
    """Nothing more can be inflated; the message has the reason."""


class GzipStream:
    """Reads a seekable gzip file from its beginning."""

    def __init__(self, file: BinaryIO | HashedFile) -> None:
        self._file = file
        self._fast = igzip.IGzipFile(fileobj=file, mode="rb")
        self._position = 0
        self._salvaged: Iterator[bytes] | None = None
        self._rest = bytearray()

    def read(self, count: int) -> bytes:
        """The next `count` bytes, fewer at the end. Raises DamagedGzipError where damage leaves fewer."""
        if self._salvaged is not None:
            return self._read_carefully(self._salvaged, count)
        try:
            data = self._fast.read(count)
        except _DAMAGE:
            return self._read_carefully(self._start_again(), count)
        self._position += len(data)
        return data

    def _start_again(self) -> Iterator[bytes]:
        """Pieces inflated by zlib; those that ISA-L already returned are skipped."""
        self._file.seek(0)
        pieces = self._salvaged = _inflate_carefully(self._file)
        to_skip = self._position
        while to_skip:
            to_skip -= len(self._read_carefully(pieces, min(to_skip, _CHUNK)))
        return pieces

    def _read_carefully(self, pieces: Iterator[bytes], count: int) -> bytes:
        while len(self._rest) < count and (piece := next(pieces, None)) is not None:
            self._rest += piece
        data = bytes(self._rest[:count])
        del self._rest[:count]
        return data


def _inflate_carefully(file: BinaryIO | HashedFile) -> Iterator[bytes]:
    """Everything up to the damaged byte, then DamagedGzipError."""
    inflate = zlib.decompressobj(wbits=31)
    while chunk := file.read(_CHUNK):
        while chunk:
            if inflate.eof:
                inflate = zlib.decompressobj(wbits=31)
            before = inflate.copy()
            try:
                yield inflate.decompress(chunk)
            except zlib.error:
                yield from _byte_by_byte(before, chunk)
            chunk = inflate.unused_data.lstrip(b"\0")  # padding after a member is allowed
    if not inflate.eof:
        raise DamagedGzipError("the gzip stream is truncated")


def _byte_by_byte(inflate: "zlib._Decompress", chunk: bytes) -> Iterator[bytes]:
    for byte in chunk:
        try:
            yield inflate.decompress(bytes((byte,)))
        except zlib.error as error:
            raise DamagedGzipError(f"the gzip stream is damaged: {error}") from None
