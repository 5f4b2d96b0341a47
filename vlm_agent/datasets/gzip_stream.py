"""Reading a gzip file fast, and to the last good byte where it is damaged.

ISA-L inflates several times faster than zlib, but a call that meets damage gives back nothing of what it had inflated
by then, which can be several records. So at the first damage the file is inflated again with zlib, up to the very byte.
"""

import gzip
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from isal import igzip, isal_zlib

_CHUNK = 1 << 16


class DamagedGzipError(Exception):
    """Nothing more can be inflated; the message says why."""


class GzipStream:
    """Reads forward through a seekable gzip file."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self._fast = igzip.IGzipFile(fileobj=file, mode="rb")
        self._position = 0
        self._salvaged: Iterator[bytes] | None = None
        self._rest = bytearray()

    def read(self, count: int) -> bytes:
        """The next `count` bytes, fewer at the end; DamagedGzipError where there are fewer because of damage."""
        if self._salvaged is None:
            try:
                data = self._fast.read(count)
            except (EOFError, gzip.BadGzipFile, isal_zlib.error):
                self._start_again()
            else:
                self._position += len(data)
                return data
        return self._read_carefully(count)

    def _start_again(self) -> None:
        self._file.seek(0)
        self._salvaged = _inflate_carefully(self._file)
        to_skip = self._position
        while to_skip:
            to_skip -= len(self._read_carefully(min(to_skip, _CHUNK)))

    def _read_carefully(self, count: int) -> bytes:
        while len(self._rest) < count and (piece := next(self._salvaged, None)) is not None:
            self._rest += piece
        data = bytes(self._rest[:count])
        del self._rest[:count]
        return data


def _inflate_carefully(file: BinaryIO) -> Iterator[bytes]:
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
