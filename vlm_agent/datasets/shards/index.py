"""The index of a folder of shards: the small columns of all episodes in one file.

A shard has a row group per episode, and reading a column of 700,000 row groups takes minutes and gigabytes of footers.
The columns that are needed to open a data set, to count and to select episodes are therefore copied here when the
shards are complete. All of it is also in the shards; `vlm-agent convert` rewrites a missing index.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from vlm_agent.datasets.shards.schema import IN_STEPS, SCHEMA, check_is_shard, empty_table
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write
from vlm_agent.files.parquet import ParquetWriter, check_columns, open_parquet

INDEX = "index.parquet"

INDEXED = (
    *(name for name in SCHEMA.names if name != "steps"),
    *(IN_STEPS + name for name in ("height", "width", "action_kind", "touch_yx", "lift_yx", "text")),
)
"""Columns of the shards that are in the index. It also has `shard` and `row_group`, the place of the episode."""

_ROWS_A_GROUP = 8192
_REMEDY = "move it away and run `vlm-agent convert --finish --output` with this folder to write it again"
_REMEDY_OF_SHARD = "move it away and run the same `vlm-agent convert` again"


def write_index(directory: Path, episodes: Iterable[tuple[str, int]]) -> None:
    """Writes the index file.

    `episodes`: for each shard, its path within `directory` and the number of episodes it must hold.

    Raises DatasetError for a shard that cannot be read or holds another number.
    """
    with atomic_write(directory / INDEX) as temporary:
        writer = None
        waiting: list[pa.Table] = []
        for shard, count in episodes:
            waiting.append(_rows_of(directory, shard, count))
            if sum(table.num_rows for table in waiting) >= _ROWS_A_GROUP:
                writer = _write(writer, temporary, waiting)
        writer = _write(writer, temporary, waiting or [_located(empty_table(INDEXED), "")])
        writer.close()


def read_index(index: Path, columns: Sequence[str]) -> pa.Table:
    """The columns (of `INDEXED`, `shard` and `row_group`) of every episode.

    Raises DatasetError for a file that is missing or damaged.
    """
    with open_parquet(index, _REMEDY) as file:
        expected = _located(empty_table(INDEXED), "").schema
        check_columns(index, file.schema, expected, expected.names, _REMEDY)
        return file.read(columns)


def _rows_of(directory: Path, shard: str, count: int) -> pa.Table:
    """The rows of a shard for the index."""
    path = directory / shard
    with open_parquet(path, _REMEDY_OF_SHARD) as file:
        check_is_shard(path, file.schema, _REMEDY_OF_SHARD)
        table = file.read(INDEXED)
    if table.num_rows != count:
        raise DatasetError(f"{path} has {table.num_rows} episodes, but {count} in the manifest; {_REMEDY_OF_SHARD}")
    return _located(table, shard)


def _located(table: pa.Table, shard: str) -> pa.Table:
    count = table.num_rows
    table = table.append_column("shard", pa.array([shard] * count, pa.string()))
    return table.append_column("row_group", pa.array(range(count), pa.int32()))


def _write(writer: ParquetWriter | None, sink: Path, waiting: list[pa.Table]) -> ParquetWriter:
    """Writes the waiting rows as one row group and clears the list."""
    table = pa.concat_tables(waiting).replace_schema_metadata(None)
    waiting.clear()
    if writer is None:
        writer = ParquetWriter(sink, table.schema, compression="zstd")
    writer.write_table(table, row_group_size=_ROWS_A_GROUP)
    return writer
