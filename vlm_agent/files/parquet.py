"""Parquet files whose damage is noticed: every byte that is read has a checksum.

Parquet has checksums of pages, and none of page headers and of the footer, in which one flipped bit can rename a column
or drop rows. A `ParquetWriter` therefore adds a block between the data and the footer, where other readers do not look:

    CRC-32 of each column chunk, row group by row group, 4 bytes each, little-endian
    SHA-256 of these and the footer, its length and the magic
    the number of sums, 4 bytes
    the marker of such a block; its name is also a key of the footer's metadata

Files of other programs have no such block, and are read without these checks.
"""

import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from vlm_agent.errors import DatasetError, remedy_of_missing

_KEY = b"vlm_agent_checksums"
_MARKER = b"VLMSUMS1"
_MAGIC = b"PAR1"
_END = 4 + len(_MAGIC)
"""Bytes after the footer: its length and the magic."""

_DIGEST = hashlib.sha256().digest_size
_SUM, _COUNT = 4, 4
_SLACK = 128
"""The marker is looked for in so many bytes before the footer, whose length may be damaged."""


class ParquetWriter(pq.ParquetWriter):
    """`pyarrow.parquet.ParquetWriter` with checksums of pages, and in a file at a path also the block of checksums."""

    def __init__(self, where: Path | pa.NativeFile, schema: pa.Schema, **options: Any) -> None:
        super().__init__(_in_utf8(where), schema, write_page_checksum=True, **options)
        self._where = where

    def close(self) -> None:
        if self.is_open and isinstance(self._where, Path):
            self.add_key_value_metadata({_KEY: b"1"})
            super().close()
            _add_checksums(self._where)
        super().close()

    def __exit__(self, kind: object, *error: object) -> None:
        """After an error the file is incomplete: a checksum of it would hide that error, such as a full disk."""
        if kind is None:
            self.close()
        else:
            super().close()


def _in_utf8(where: Any) -> Any:
    """`where`. Raises DatasetError for a path that Arrow cannot open."""
    try:
        str(where).encode()
    except UnicodeEncodeError:
        raise DatasetError(f"{os.fsencode(str(where))!r} is not valid UTF-8; rename it") from None
    return where


def _add_checksums(path: Path) -> None:
    with path.open("r+b") as file:
        footer = _read_footer(file)
        metadata = pq.read_metadata(pa.BufferReader(footer))
        places = product(range(metadata.num_row_groups), range(metadata.num_columns))
        sums = b"".join(_sum(file, metadata.row_group(group).column(column)) for group, column in places)
        file.seek(-len(footer), 2)
        count = (len(sums) // _SUM).to_bytes(_COUNT, "little")
        file.write(sums + hashlib.sha256(sums + footer).digest() + count + _MARKER + footer)


@dataclass(frozen=True)
class Footer:
    """`sums`: the CRC-32 of each column chunk; None in a file without them."""

    metadata: pq.FileMetaData
    sums: bytes | None


class ParquetReader:
    """An open Parquet file (`open_parquet`). Reads without threads, so that a forked process can use it.

    Reading raises DatasetError naming the file where it is damaged.
    """

    def __init__(self, path: Path, remedy: str, footer: Footer, file: BinaryIO) -> None:
        self._path, self._remedy, self._footer, self._file = path, remedy, footer, file
        with _naming(path, remedy):
            self._parquet = pq.ParquetFile(
                _in_utf8(path), metadata=footer.metadata, pre_buffer=False, page_checksum_verification=True
            )

    @property
    def schema(self) -> pa.Schema:
        return self._parquet.schema_arrow

    @property
    def groups(self) -> range:
        """The numbers of the row groups."""
        return range(self._footer.metadata.num_row_groups)

    def read(self, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None) -> pa.Table:
        """The columns, or all of them, of all row groups or of `groups`."""
        groups = self.groups if groups is None else groups
        with _naming(self._path, self._remedy):
            self._check(groups, columns)
            return self._parquet.read_row_groups(list(groups), columns=columns, use_threads=False)

    def batches(self, rows: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """At most `rows` at a time."""
        for group in self.groups:
            with _naming(self._path, self._remedy):
                self._check([group], columns)
                yield from self._parquet.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)

    def close(self) -> None:
        self._parquet.close()

    def _check(self, groups: Sequence[int], columns: Sequence[str] | None) -> None:
        sums, metadata = self._footer.sums, self._footer.metadata
        if sums is None:
            return
        paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
        wanted = [number for number, path in enumerate(paths) if columns is None or _is_in(path, columns)]
        for group in groups:
            chunks = metadata.row_group(group)
            for column in wanted:
                start = (group * metadata.num_columns + column) * _SUM
                if _sum(self._file, chunks.column(column)) != sums[start : start + _SUM]:
                    raise _DamagedError(f"the checksum of {paths[column]} in row group {group} differs")


@contextmanager
def open_parquet(path: Path, remedy: str, footer: Footer | None = None) -> Iterator[ParquetReader]:
    """The file, to be read within the block.

    `remedy`: what to do about damage, as the end of an error. `footer`: of `read_footer`, if it is known.

    Raises DatasetError naming the file where it is missing or damaged.
    """
    footer = read_footer(path, remedy) if footer is None else footer
    with path.open("rb") as file, closing(ParquetReader(path, remedy, footer, file)) as reader:
        yield reader


def read_footer(path: Path, remedy: str) -> Footer:
    """Raises DatasetError as `open_parquet`."""
    with _naming(path, remedy), path.open("rb") as file:
        footer = _read_footer(file)
        before = min(file.seek(0, 2) - len(footer), _SLACK)
        file.seek(-len(footer) - before, 2)
        tail = file.read(before)
        if _KEY not in footer and _MARKER not in tail + footer:
            return Footer(pq.read_metadata(pa.BufferReader(footer)), None)
        if not tail.endswith(_MARKER):
            raise _DamagedError("its checksums are damaged")
        return _checked(file, footer, tail[: -len(_MARKER)])


def check_columns(path: Path, found: pa.Schema, expected: pa.Schema, names: Sequence[str], remedy: str) -> None:
    """Raises DatasetError naming the file where `found` lacks one of the columns or has it with another type."""
    for name in names:
        if found.get_field_index(name) < 0 or found.field(name).type != expected.field(name).type:
            raise DatasetError(f"{path} has no column {name} of type {expected.field(name).type}; {remedy}")


class _DamagedError(ValueError):
    """The message is the reason."""


@contextmanager
def _naming(path: Path, remedy: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing; {remedy_of_missing(remedy)}") from None
    except (OSError, pa.ArrowException, _DamagedError) as error:
        reason = str(error).partition("\n")[0]
        raise DatasetError(f"{path} cannot be read ({reason}); {remedy}") from None


def _read_footer(file: BinaryIO) -> bytes:
    """The footer, its length and the magic."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _END))
    end = file.read(_END)
    if not end.endswith(_MAGIC) or len(end) < _END:
        raise _DamagedError("it is not a Parquet file, or is cut short")
    length = int.from_bytes(end[:4], "little") + _END
    if length > size:
        raise _DamagedError("it is cut short")
    file.seek(size - length)
    return file.read(length)


def _checked(file: BinaryIO, footer: bytes, tail: bytes) -> Footer:
    """The footer with the sums before it; `tail` ends with their digest and their number."""
    length = int.from_bytes(tail[-_COUNT:], "little") * _SUM
    position = file.seek(0, 2) - len(footer) - len(_MARKER) - _COUNT - _DIGEST - length
    if position < 0:
        raise _DamagedError("its checksums are damaged")
    file.seek(position)
    sums = file.read(length)
    if hashlib.sha256(sums + footer).digest() != tail[-_COUNT - _DIGEST : -_COUNT]:
        raise _DamagedError("its footer is damaged: the checksum differs")
    return Footer(pq.read_metadata(pa.BufferReader(footer)), sums)


def _sum(file: BinaryIO, chunk: pq.ColumnChunkMetaData) -> bytes:
    file.seek(chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset)
    return zlib.crc32(file.read(chunk.total_compressed_size)).to_bytes(_SUM, "little")


def _is_in(path: str, columns: Sequence[str]) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in columns)
