"""Writing of a folder of shards: the shards, their index, and last the manifest."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from vlm_agent.datasets.shards.dataset import MANIFEST
from vlm_agent.datasets.shards.schema import (
    COMPRESSED,
    INDEX,
    INDEX_SCHEMA,
    INDEXED,
    SCHEMA,
    VERSION,
    check_is_shard,
    to_row,
)
from vlm_agent.episodes import Episode
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write, write_checked
from vlm_agent.files.console import Progress
from vlm_agent.files.parquet import ParquetWriter, open_parquet

if TYPE_CHECKING:
    from rich.console import Console

_INDEX_ROWS_A_GROUP = 8192
_REMEDY = "move it away and run the same `vlm-agent convert` again"


class ShardWriter:
    """Writes one shard; a context manager. `path` appears when the block ends without an error and has an episode."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack = ExitStack()
        self._writer: ParquetWriter | None = None

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, *error) -> None:
        with self._named_errors():
            self._stack.__exit__(*error)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """pyarrow's errors do not name the file."""
        try:
            yield
        except OSError as error:
            if error.errno is None or error.filename is not None:
                raise
            raise OSError(error.errno, os.strerror(error.errno), str(self._path)) from error

    def write(self, episode: Episode, split: str) -> None:
        """Appends an episode, its screens as PNGs. Raises DatasetError for an episode without pixels."""
        self.write_row(to_row(episode, split))

    def write_row(self, row: dict) -> None:
        """Appends an episode as a row of `episode_row`, or as one that `ShardDataset.row` read."""
        with self._named_errors():
            if self._writer is None:
                # Statistics and dictionaries only pay off with many rows per group; here a group has one row.
                self._writer = self._stack.enter_context(
                    ParquetWriter(
                        self._stack.enter_context(atomic_write(self._path)),
                        SCHEMA,
                        compression=dict.fromkeys(COMPRESSED, "zstd"),
                        compression_level=dict.fromkeys(COMPRESSED, 1),
                        use_dictionary=False,
                        write_statistics=False,
                    )
                )
            self._writer.write_table(pa.Table.from_pylist([row], schema=SCHEMA))


def write_manifest(folder: Path, manifest: dict, console: "Console | None" = None) -> None:
    """Writes the index, then the manifest. It is the last file, so its existence means a complete conversion. The index
    reads every shard, which `console` shows.

    Raises DatasetError for a shard that cannot be read, or has another number of episodes than the manifest says.
    """
    shards = [(file["shard"], file["episodes_written"]) for file in manifest["files"] if file["shard"]]
    if console is None:
        write_index(folder, shards)
    else:
        with Progress(console, len(shards), "shards").shown() as progress:
            write_index(folder, shards, partial(progress.advance, 1, "index"))
    write_checked(folder / MANIFEST, {"schema_version": VERSION} | manifest, indent=2)


def write_index(folder: Path, shards: Iterable[tuple[str, int]], advance: Callable[[], object] = bool) -> None:
    """Writes the index file. `shards`: the path of each within `folder`, and the number of episodes it must hold.
    `advance` is called after each."""
    with (
        atomic_write(folder / INDEX) as temporary,
        ParquetWriter(temporary, INDEX_SCHEMA, compression="zstd") as writer,
    ):
        waiting: list[pa.Table] = []
        for shard, count in shards:
            waiting.append(_index_of(folder, shard, count))
            advance()
            if sum(table.num_rows for table in waiting) >= _INDEX_ROWS_A_GROUP:
                writer.write_table(pa.concat_tables(waiting), row_group_size=_INDEX_ROWS_A_GROUP)
                waiting.clear()
        rest = pa.concat_tables(waiting or [INDEX_SCHEMA.empty_table()])
        writer.write_table(rest, row_group_size=_INDEX_ROWS_A_GROUP)


def _index_of(folder: Path, shard: str, count: int) -> pa.Table:
    """The rows of a shard in the index."""
    path = folder / shard
    with open_parquet(path, _REMEDY) as file:
        check_is_shard(path, file.schema, _REMEDY)
        table = file.read(INDEXED).replace_schema_metadata(None)
    if table.num_rows != count:
        raise DatasetError(f"{path} has {table.num_rows} episodes, but {count} in the manifest; {_REMEDY}")
    table = table.append_column("shard", pa.array([shard] * count, pa.string()))
    return table.append_column("row_group", pa.array(range(count), pa.int32()))
