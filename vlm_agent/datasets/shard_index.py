"""The index of a folder of shards: every column that is small, of all episodes in one file.

A shard has a row group an episode, so that one episode is read alone; to read a column of 700,000 row groups takes
minutes, and their footers take gigabytes. What opening a data set, counting and choosing need is therefore copied here
once, when the shards are complete. It holds nothing that the shards do not; `vlm-agent convert` writes it again where
it is missing.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vlm_agent.datasets import DatasetError, written_whole
from vlm_agent.datasets.shard_schema import IN_STEPS, SCHEMA

INDEX = "index.parquet"

INDEXED = (
    *(name for name in SCHEMA.names if name != "steps"),
    *(IN_STEPS + name for name in ("height", "width", "action_kind", "touch_yx", "lift_yx", "text")),
)
"""Columns of the shards that are in the index; beside them it has `shard` and `row_group`, where the episode is."""

_ROWS_A_GROUP = 8192


def write_index(directory: Path, episodes: Iterable[tuple[str, int]]) -> None:
    """`episodes`: of each shard, its path within `directory` and the number of episodes it must hold.

    Raises DatasetError for a shard that cannot be read or holds another number.
    """
    with written_whole(directory / INDEX) as temporary:
        writer = None
        waiting: list[pa.Table] = []
        for shard, count in episodes:
            waiting.append(_rows_of(directory, shard, count))
            if sum(table.num_rows for table in waiting) >= _ROWS_A_GROUP:
                writer = _write(writer, temporary, waiting)
        writer = _write(writer, temporary, waiting or [_located(_empty(), "")])
        writer.close()


def read_index(directory: Path, columns: Sequence[str]) -> pa.Table:
    """The named columns (of `INDEXED`, `shard` and `row_group`) of every episode; DatasetError where there is none."""
    path = directory / INDEX
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read(list(columns), use_threads=False)
    except FileNotFoundError:
        remedy = "`vlm-agent convert --finish --output` that folder writes it again"
    except (OSError, pa.ArrowException) as error:
        remedy = f"it cannot be read ({error}); remove it, and the same `vlm-agent convert` writes it again"
    raise DatasetError(f"{path} is missing or damaged: {remedy}") from None


def _rows_of(directory: Path, shard: str, count: int) -> pa.Table:
    path = directory / shard
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read(list(INDEXED), use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(
            f"{path} cannot be read ({error}); remove it, and the same `vlm-agent convert` makes it again"
        ) from None
    if table.num_rows != count:
        raise DatasetError(
            f"{path} has {table.num_rows} episodes where the manifest says {count}; remove it, and the same "
            "`vlm-agent convert` makes it again"
        )
    return _located(table, shard)


def _located(table: pa.Table, shard: str) -> pa.Table:
    count = table.num_rows
    table = table.append_column("shard", pa.array([shard] * count, pa.string()))
    return table.append_column("row_group", pa.array(range(count), pa.int32()))


def _empty() -> pa.Table:
    """No episode; reading columns of a Parquet file is what drops the fields of a struct."""
    sink = pa.BufferOutputStream()
    pq.write_table(SCHEMA.empty_table(), sink)
    return pq.ParquetFile(pa.BufferReader(sink.getvalue())).read(list(INDEXED))


def _write(writer: pq.ParquetWriter | None, path: Path, waiting: list[pa.Table]) -> pq.ParquetWriter:
    """Writes what is waiting as one row group and forgets it."""
    table = pa.concat_tables(waiting).replace_schema_metadata(None)
    waiting.clear()
    if writer is None:
        writer = pq.ParquetWriter(path, table.schema, compression="zstd", write_page_checksum=True)
    writer.write_table(table, row_group_size=_ROWS_A_GROUP)
    return writer
