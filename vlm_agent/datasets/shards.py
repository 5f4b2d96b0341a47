"""Shards: episodes as Parquet, one row and one row group an episode, and a manifest that means complete.

    DIR/manifest.json                             written last: counts, schema version, sources, options
    DIR/index.parquet                             the small columns of all shards once more (`shard_index`)
    DIR/google_apps/google_apps-00000-of-00001.parquet
    DIR/quarantine.jsonl                          what could not be used, and why

A row group an episode makes one episode readable for about its own bytes; columns are stored apart, so everything but
the pixels is readable without touching them. `datasets.load_dataset("parquet", data_files=…)` shows the screens as
pictures. Pages carry checksums, which are verified when read.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vlm_agent.datasets import DatasetError, written_whole
from vlm_agent.datasets.shard_index import INDEXED, read_index, write_index
from vlm_agent.datasets.shard_schema import (
    ALL_BUT_PIXELS,
    ALL_COLUMNS,
    COMPRESSED,
    IN_STEPS,
    SCHEMA,
    SCHEMA_VERSION,
    from_row,
    to_row,
)
from vlm_agent.datasets.splits import SPLITS
from vlm_agent.episodes import SUBSETS, Episode, Step

MANIFEST = "manifest.json"

_REMEDY = "remove that shard, and the same `vlm-agent convert` makes it again"


class ShardWriter:
    """Writes one shard; a context manager. `path` appears when the block ends well and an episode was written."""

    def __init__(self, path: Path):
        self._path = path
        self._stack = ExitStack()
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, *error) -> None:
        self._stack.__exit__(*error)

    def write(self, episode: Episode, split: str) -> None:
        """Appends an episode with its pixels, as PNGs; raises DatasetError where it has none."""
        self.write_row(to_row(episode, split))

    def write_row(self, row: dict) -> None:
        """Appends an episode that is a row already, as `episode_row` makes them."""
        if self._writer is None:
            self._writer = self._open()
        self._writer.write_table(pa.Table.from_pylist([row], schema=SCHEMA))

    def _open(self) -> pq.ParquetWriter:
        # Statistics and dictionaries pay for many rows a group; a group of one row would only carry their weight.
        writer = pq.ParquetWriter(
            self._stack.enter_context(written_whole(self._path)),
            SCHEMA,
            compression=dict.fromkeys(COMPRESSED, "zstd"),
            compression_level=dict.fromkeys(COMPRESSED, 1),
            use_dictionary=False,
            write_statistics=False,
            write_page_checksum=True,
        )
        return self._stack.enter_context(writer)


class ScreenSizes(Sequence):
    """Of each episode, the (height, width) of each screen: its lengths in steps and in tokens, without pixels."""

    def __init__(self, offsets: np.ndarray, heights: np.ndarray, widths: np.ndarray):
        self._offsets, self._heights, self._widths = offsets, heights, widths

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> tuple[tuple[int, int], ...]:
        index = range(len(self))[index]
        here = slice(self._offsets[index], self._offsets[index + 1])
        return tuple(zip(self._heights[here].tolist(), self._widths[here].tolist(), strict=True))


class ShardDataset:
    """The episodes of a converted folder, in the order of its manifest; `[i]` reads one of them with its pixels.

    `split` and `subset` keep only the episodes that have them. Safe to share with threads and to send to, or fork into,
    DataLoader workers: no file stays open between reads.

    Raises DatasetError where the folder has no manifest (a conversion that did not finish), one of another schema
    version, or no index; when an episode is read from a shard that is not what the index says; and for a split or
    subset that cannot exist.
    """

    def __init__(self, directory: Path, split: str | None = None, subset: str | None = None):
        _check_known("split", split, SPLITS)
        _check_known("subset", subset, SUBSETS)
        self.directory = Path(directory)
        self.manifest = read_manifest(self.directory)
        names = ("episode_id", "subset", "split", "shard", "row_group", IN_STEPS + "height", IN_STEPS + "width")
        index = read_index(self.directory, names)
        self._kept = _where(index, split=split, subset=subset)
        self._index = index.take(self._kept).combine_chunks()
        self._row_groups = self._index["row_group"].to_numpy()

    def __len__(self) -> int:
        return len(self._row_groups)

    def __getitem__(self, index: int) -> Episode:
        """The episode with its screens as uint8 (height, width, 3) arrays; points are the float32 values stored."""
        return from_row(self._read(index, None))

    def step(self, index: int, number: int) -> Step:
        """Step `number` of an episode; only this one of its screens is decoded, most of the cost of reading."""
        row = self._read(index, None)
        return from_row(row | {"steps": [row["steps"][number]]}).steps[0]

    def steps(self, index: int, first: int, last: int) -> Episode:
        """The episode with its steps `first` … `last`-1 alone; no other screen is decoded."""
        row = self._read(index, None)
        return from_row(row | {"steps": row["steps"][first:last]})

    def __iter__(self) -> Iterator[Episode]:
        return (self[index] for index in range(len(self)))

    def without_pixels(self, index: int) -> Episode:
        """The episode with every screenshot None; the pixels are not read."""
        return from_row(self._read(index, ALL_BUT_PIXELS))

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Of each episode, its id."""
        return tuple(self._index["episode_id"].to_pylist())

    @cached_property
    def subsets(self) -> tuple[str, ...]:
        """Of each episode, its subset."""
        return tuple(map(sys.intern, self._index["subset"].to_pylist()))

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """Of each episode, its split."""
        return tuple(map(sys.intern, self._index["split"].to_pylist()))

    @cached_property
    def screen_sizes(self) -> ScreenSizes:
        steps = self._index["steps"].combine_chunks()
        sizes = steps.flatten()
        offsets = np.concatenate([[0], np.cumsum(pc.list_value_length(steps).to_numpy())])
        return ScreenSizes(offsets, *(sizes.field(name).to_numpy() for name in ("height", "width")))

    def table(self, columns: Sequence[str]) -> pa.Table:
        """The named columns of every episode, in order; columns of steps are named `IN_STEPS + "height"`.

        Those of `INDEXED` come at once; any other means a look into every shard. Raises DatasetError for a column that
        does not exist.
        """
        if unknown := set(columns) - set(ALL_COLUMNS):
            raise DatasetError(
                f"shards have no column {', '.join(sorted(unknown))}; they have {', '.join(ALL_COLUMNS)}"
            )
        if set(columns) <= set(INDEXED):
            return read_index(self.directory, columns).take(self._kept)
        groups: dict[str, list[int]] = {}
        for shard, row_group in zip(self._index["shard"].to_pylist(), self._row_groups.tolist(), strict=True):
            groups.setdefault(shard, []).append(row_group)
        tables = [_read(self.directory / shard, row_groups, columns) for shard, row_groups in groups.items()]
        return pa.concat_tables(tables) if tables else SCHEMA.empty_table()

    def _read(self, index: int, columns: Sequence[str] | None) -> dict:
        index = range(len(self))[index]
        path = self.directory / self._index["shard"][index].as_py()
        row = _read(path, [int(self._row_groups[index])], columns).to_pylist()[0]
        expected = self._index["episode_id"][index].as_py()
        if row["episode_id"] != expected:
            raise DatasetError(f"{path} has episode {row['episode_id']} where the index says {expected}; {_REMEDY}")
        return row


def _where(index: pa.Table, **wanted: str | None) -> pa.Array:
    """The rows that have these values; a value that is None is not asked for."""
    kept = np.ones(index.num_rows, bool)
    for column, value in wanted.items():
        if value is not None:
            kept &= pc.equal(index[column], value).to_numpy()
    return pa.array(np.flatnonzero(kept))


def read_manifest(directory: Path) -> dict:
    """The manifest of a complete conversion; DatasetError where there is none or another schema version."""
    path = directory / MANIFEST
    if not path.is_file():
        raise DatasetError(
            f"{directory} has no {MANIFEST}: it holds no shards, or their conversion did not finish; "
            "`vlm-agent convert`, as it was begun, goes on from where it stopped"
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        version, _ = manifest["schema_version"], [file["shard"] for file in manifest["files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path} is not a manifest of shards: {error}") from None
    if version != SCHEMA_VERSION:
        raise DatasetError(
            f"{path} has schema version {version}, this program reads {SCHEMA_VERSION}; convert the data again"
        )
    return manifest


def write_manifest(directory: Path, manifest: dict) -> None:
    """Written when everything else is, the index right before it: whoever finds a manifest finds a complete conversion.

    Raises DatasetError for a shard that does not hold as many episodes as the manifest says.
    """
    files = manifest["files"]
    write_index(directory, [(file["shard"], file["episodes_written"]) for file in files if file["shard"]])
    with written_whole(directory / MANIFEST) as temporary:
        text = json.dumps({"schema_version": SCHEMA_VERSION} | manifest, indent=2, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def _check_known(name: str, value: str | None, known: Sequence[str]) -> None:
    if value is not None and value not in known:
        raise DatasetError(f"{name} {value!r} does not exist; there are {', '.join(known)}")


def _metadata(path: Path) -> pq.FileMetaData:
    try:
        stat = path.stat()
        return _parsed_footer(path, stat.st_size, stat.st_mtime_ns)
    except FileNotFoundError:
        raise DatasetError(f"{path} is in the index but not on disk; {_REMEDY}") from None
    except pa.ArrowInvalid as error:
        raise DatasetError(f"{path} is not a Parquet file: {error}; {_REMEDY}") from None


@lru_cache(maxsize=32)
def _parsed_footer(path: Path, size: int, mtime_ns: int) -> pq.FileMetaData:
    """Kept, so that reading an episode does not parse it again; few, because a footer has 18 kB for each episode.

    Memory only, so it survives a fork.
    """
    return pq.read_metadata(path)


def _read(path: Path, row_groups: list[int], columns: Sequence[str] | None) -> pa.Table:
    metadata = _metadata(path)
    if max(row_groups) >= metadata.num_row_groups:
        raise DatasetError(f"{path} has {metadata.num_row_groups} episodes, fewer than the index says; {_REMEDY}")
    try:
        # pre_buffer and use_threads would start threads, which a forked worker does not have and waits for in vain.
        with pq.ParquetFile(path, metadata=metadata, pre_buffer=False, page_checksum_verification=True) as file:
            return file.read_row_groups(row_groups, columns=columns, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        groups = f"row group {row_groups[0]}" if len(row_groups) == 1 else f"its {len(row_groups)} row groups"
        raise DatasetError(f"{path}: {groups} cannot be read: {error}; {_REMEDY}") from None
