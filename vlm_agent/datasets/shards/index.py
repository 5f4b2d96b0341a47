"""The index of a folder of shards: the small columns of all episodes in one file.

A shard has a row group per episode, and reading a column of 700,000 row groups takes minutes and gigabytes of footers.
The columns that are needed to open a data set, to count and to select episodes are therefore copied here when the
shards are complete. All of it is also in the shards; `vlm-agent convert` rewrites a missing index.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vlm_agent.datasets.shards.schema import FIRST_VERSION, IN_STEPS, LATEST_SCHEMA, check_is_shard, empty_table
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write
from vlm_agent.files.parquet import ParquetWriter, check_columns, open_parquet

INDEX = "index.parquet"

INDEXED = (
    *(name for name in LATEST_SCHEMA.names if name != "steps"),
    *(IN_STEPS + name for name in ("height", "width", "action_kind", "touch_yx", "lift_yx", "text")),
)
"""Columns of the shards that are in the index. It also has `shard` and `row_group`, the place of the episode."""

_ROWS_A_GROUP = 8192
_REMEDY = "move it away and run `vlm-agent convert --finish --output` with this folder to write it again"
_REMEDY_OF_SHARD = "move it away and run the same `vlm-agent convert` again"


def write_index(directory: Path, episodes: Iterable[tuple[str, int]]) -> int:
    """Writes the index file and returns the highest schema version of the shards, `FIRST_VERSION` without shards.

    `episodes`: for each shard, its path within `directory` and the number of episodes it must hold.

    Raises DatasetError for a shard that cannot be read or holds another number.
    """
    with atomic_write(directory / INDEX) as temporary:
        return _write_index(directory, episodes, temporary)


def index_in_memory(directory: Path, episodes: Iterable[tuple[str, int]]) -> pa.Buffer:
    """The bytes of the index, for the folders of version 1, which have none. Raises DatasetError as `write_index`."""
    sink = pa.BufferOutputStream()
    _write_index(directory, episodes, sink)
    return sink.getvalue()


def _write_index(directory: Path, episodes: Iterable[tuple[str, int]], sink: Path | pa.NativeFile) -> int:
    writer = None
    waiting: list[pa.Table] = []
    version = FIRST_VERSION
    for shard, count in episodes:
        table, its_version = _rows_of(directory, shard, count)
        version = max(version, its_version)
        waiting.append(table)
        if sum(table.num_rows for table in waiting) >= _ROWS_A_GROUP:
            writer = _write(writer, sink, waiting)
    writer = _write(writer, sink, waiting or [_located(empty_table(INDEXED), "")])
    writer.close()
    return version


def read_index(index: Path | pa.Buffer, columns: Sequence[str]) -> pa.Table:
    """The columns (of `INDEXED`, `shard` and `row_group`) of every episode, from the file or from its bytes.

    Raises DatasetError for a file that is missing or damaged.
    """
    if isinstance(index, pa.Buffer):
        return pq.ParquetFile(pa.BufferReader(index)).read(list(columns), use_threads=False)
    with open_parquet(index, _REMEDY) as file:
        expected = _located(empty_table(INDEXED), "").schema
        check_columns(index, file.schema, expected, expected.names, _REMEDY)
        return file.read(columns)


def _rows_of(directory: Path, shard: str, count: int) -> tuple[pa.Table, int]:
    """The rows of a shard for the index, and the shard's schema version."""
    path = directory / shard
    with open_parquet(path, _REMEDY_OF_SHARD) as file:
        version = check_is_shard(path, file.schema, _REMEDY_OF_SHARD)
        table = file.read(INDEXED)
    if table.num_rows != count:
        raise DatasetError(f"{path} has {table.num_rows} episodes, but {count} in the manifest; {_REMEDY_OF_SHARD}")
    return _located(table, shard), version


def _located(table: pa.Table, shard: str) -> pa.Table:
    count = table.num_rows
    table = table.append_column("shard", pa.array([shard] * count, pa.string()))
    return table.append_column("row_group", pa.array(range(count), pa.int32()))


def _write(writer: ParquetWriter | None, sink: Path | pa.NativeFile, waiting: list[pa.Table]) -> ParquetWriter:
    """Writes the waiting rows as one row group and clears the list."""
    table = pa.concat_tables(waiting).replace_schema_metadata(None)
    waiting.clear()
    if writer is None:
        writer = ParquetWriter(sink, table.schema, compression="zstd")
    writer.write_table(table, row_group_size=_ROWS_A_GROUP)
    return writer
