"""Gzip files read by ISA-L, several times faster than zlib, up to damaged bytes.

An ISA-L call that finds damage discards its output up to there, which can be several records. At the
first damage `GzipStream` therefore inflates the file again with zlib, up to the damaged byte.
"""

import gzip
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from isal import igzip, isal_zlib

from vlm_agent.files.hashing import HashedFile

_CHUNK = 1 << 16
_DAMAGE: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, isal_zlib.error)  # type: ignore[assignment]  # isal's stub has an instance


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
