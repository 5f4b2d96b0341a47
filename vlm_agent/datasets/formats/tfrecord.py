"""TFRecord framing: a file is a sequence of length-prefixed payloads with checksums, usually inside gzip.

A record is a little-endian uint64 length, the masked CRC-32C of those eight bytes, the payload, and the masked CRC-32C
of the payload (TensorFlow, `tensorflow/core/lib/io/record_writer.h`). AITW uses GZIP files.

ISA-L inflates several times faster than zlib, but a call that finds damage discards its output up to there, which can
be several records. At the first damage `GzipStream` inflates the file again with zlib, up to the damaged byte.
"""

import gzip
import io
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

import google_crc32c
from isal import igzip, isal_zlib

from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write
from vlm_agent.files.hashing import HashedFile
from vlm_agent.files.png import GZIP, Deflater

MAX_RECORD_BYTES = 1 << 28
"""Longer records are refused to bound memory. The largest accepted screen has 96 MiB of pixels."""

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 16
_DAMAGE: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, isal_zlib.error)  # type: ignore[assignment]  # isal's stub has an instance


_Stream: TypeAlias = "BinaryIO | HashedFile | GzipStream"


class Record(NamedTuple):
    """One record of a file: its `payload`, or the `error` that prevents reading it.

    `offset` is the first byte of the record in the uncompressed stream, `checksum` the payload's masked CRC-32C.
    `ends_file`: nothing after the error can be read.
    """

    number: int
    offset: int
    payload: bytes | None = None
    error: str | None = None
    checksum: int = 0
    ends_file: bool = False


class _FramingLostError(Exception):
    """The start of the next record cannot be determined."""


def masked_crc32c(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def read_records(path: Path, file: BinaryIO | HashedFile | None = None) -> Iterator[Record]:
    """The records of a gzip or raw TFRecord file in order, one in memory at a time.

    A record with a damaged payload is yielded with its error, and the next record follows. If the framing is lost
    (wrong checksum of a length, truncated file, damaged gzip, not a TFRecord file, empty file), the last record has the
    error; the number of records after it is unknown.

    `file` is read instead of opening `path`; it must be seekable and at its beginning. Without it, raises DatasetError
    if `path` is a folder or does not exist.
    """
    number, offset = 0, 0
    if file is None and not path.is_file():
        raise DatasetError(f"{path} {'is a folder; expected a TFRecord file' if path.is_dir() else 'does not exist'}")
    with nullcontext(file) if file is not None else path.open("rb") as opened:
        head = opened.read(_HEADER.size)
        opened.seek(0)
        stream: _Stream = GzipStream(opened) if _is_gzip(head) else opened
        while True:
            try:
                length = _read_length(stream, is_first=number == 0)
                if length is None:
                    return
                payload, checksum, error = _read_payload(stream, length)
            except _FramingLostError as lost:
                yield Record(number, offset, error=str(lost), ends_file=True)
                return
            yield Record(number, offset, payload, error, checksum)
            number, offset = number + 1, offset + _HEADER.size + length + _CHECKSUM.size


def write_records(path: Path, payloads: Iterable[bytes]) -> int:
    """Writes a gzip TFRecord file and returns the number of records.

    The same payloads give the same bytes (no time or name in the gzip header), and `path` appears only when complete.
    """
    count, deflate = 0, Deflater(GZIP)
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        for payload in payloads:
            length = struct.pack("<Q", len(payload))
            file.write(deflate.compress(length + _CHECKSUM.pack(masked_crc32c(length))))
            file.write(deflate.compress(payload))
            file.write(deflate.compress(_CHECKSUM.pack(masked_crc32c(payload))))
            count += 1
        file.write(deflate.flush())
    return count


def _is_gzip(head: bytes) -> bool:
    """Whether the file starts with gzip's magic bytes, and not with a raw record whose length looks like them."""
    is_raw_record = len(head) == _HEADER.size and masked_crc32c(head[:8]) == _CHECKSUM.unpack(head[8:])[0]
    return head.startswith(_GZIP_MAGIC) and not is_raw_record


def _read_length(stream: _Stream, is_first: bool) -> int | None:
    """The length of the next record; None at a clean end of the file."""
    header = _read(stream, _HEADER.size)
    if not header:
        if is_first:
            raise _FramingLostError("the file is empty")
        return None
    length, checksum = _HEADER.unpack(header) if len(header) == _HEADER.size else (0, None)
    if checksum is not None and masked_crc32c(header[:8]) == checksum:
        return length
    if is_first:
        raise _FramingLostError("not a TFRecord file, or its first bytes are damaged")
    if checksum is None:
        raise _FramingLostError(f"the file is truncated: {len(header)} of {_HEADER.size} bytes of a record's header")
    raise _FramingLostError("the checksum of the record's length is wrong; the rest of the file cannot be read")


def _read_payload(stream: _Stream, length: int) -> tuple[bytes | None, int, str | None]:
    """(payload, its masked checksum, None), or (None, 0, error)."""
    if length > MAX_RECORD_BYTES:
        _skip(stream, length + _CHECKSUM.size)
        return None, 0, f"the record has {length} bytes, more than the limit of {MAX_RECORD_BYTES}"
    payload, stored = _read(stream, length), _read(stream, _CHECKSUM.size)
    if len(payload) + len(stored) < length + _CHECKSUM.size:
        raise _FramingLostError(f"the file is truncated: the record has {len(payload)} of {length} bytes")
    checksum = masked_crc32c(payload)
    if checksum != _CHECKSUM.unpack(stored)[0]:
        return None, 0, "the checksum of the record's payload is wrong"
    return payload, checksum, None


def _skip(stream: _Stream, count: int) -> None:
    while count > 0:
        skipped = len(_read(stream, min(count, io.DEFAULT_BUFFER_SIZE << 6)))
        if skipped == 0:
            raise _FramingLostError(f"the file is truncated: {count} bytes of an oversized record are missing")
        count -= skipped


def _read(stream: _Stream, count: int) -> bytes:
    try:
        return stream.read(count)
    except DamagedGzipError as damage:
        raise _FramingLostError(f"{damage} within this record") from None


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
