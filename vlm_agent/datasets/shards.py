"""Shards: episodes as Parquet, one row and one row group an episode, and a manifest that means complete.

    DIR/manifest.json                             written last: counts, schema version, sources, options
    DIR/google_apps/google_apps-00000-of-00001.parquet
    DIR/quarantine.jsonl                          what could not be used, and why

A row group an episode makes one episode readable for about its own bytes; columns are stored apart, so everything but
the pixels is readable without touching them. `datasets.load_dataset("parquet", data_files=…)` shows the screens as
pictures. Pages carry checksums, which are verified when read.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from vlm_agent.datasets import DatasetError, written_whole
from vlm_agent.datasets.shard_schema import ALL_BUT_PIXELS, IN_STEPS, SCHEMA, SCHEMA_VERSION, from_row, to_row
from vlm_agent.datasets.splits import SPLITS
from vlm_agent.episodes import SUBSETS, Episode, Step

MANIFEST = "manifest.json"


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
        """Appends an episode with its pixels; raises DatasetError where it has none."""
        if self._writer is None:
            self._writer = self._open()
        self._writer.write_table(pa.Table.from_pylist([to_row(episode, split)], schema=SCHEMA))

    def _open(self) -> pq.ParquetWriter:
        # Statistics and dictionaries pay for many rows a group; a group of one row would only carry their weight.
        writer = pq.ParquetWriter(
            self._stack.enter_context(written_whole(self._path)),
            SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            write_statistics=False,
            write_page_checksum=True,
        )
        return self._stack.enter_context(writer)


class _Row(NamedTuple):
    shard: str
    row_group: int
    id: str
    subset: str
    split: str
    sizes: tuple[tuple[int, int], ...]


class ShardDataset:
    """The episodes of a converted folder, in the order of its manifest; `[i]` reads one of them with its pixels.

    `split` and `subset` keep only the episodes that have them. Safe to share with threads and to send to, or fork into,
    DataLoader workers: no file stays open between reads.

    Raises DatasetError where the folder has no manifest (a conversion that did not finish), one of another schema
    version, or shards that are not what the manifest says; and for a split or subset that cannot exist.
    """

    def __init__(self, directory: Path, split: str | None = None, subset: str | None = None):
        _check_known("split", split, SPLITS)
        _check_known("subset", subset, SUBSETS)
        self.directory = Path(directory)
        self.manifest = read_manifest(self.directory)
        rows = (row for file in self.manifest["files"] if file["shard"] for row in self._index(file, subset))
        self._rows = [row for row in rows if split in (None, row.split)]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Episode:
        """The episode with its screens as uint8 (height, width, 3) arrays; points are the float32 values stored."""
        return from_row(self._read(index, None))

    def step(self, index: int, number: int) -> Step:
        """One step of an episode; of its screens only this one is decoded, which is most of the cost of reading."""
        row = self._read(index, None)
        return from_row(row | {"steps": row["steps"][number : number + 1]}).steps[0]

    def __iter__(self) -> Iterator[Episode]:
        return (self[index] for index in range(len(self)))

    def without_pixels(self, index: int) -> Episode:
        """The episode with every screenshot None; the pixels are not read."""
        return from_row(self._read(index, ALL_BUT_PIXELS))

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Of each episode, its id."""
        return tuple(row.id for row in self._rows)

    @cached_property
    def subsets(self) -> tuple[str, ...]:
        """Of each episode, its subset."""
        return tuple(row.subset for row in self._rows)

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """Of each episode, its split."""
        return tuple(row.split for row in self._rows)

    @cached_property
    def screen_sizes(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Of each episode, the (height, width) of each screen: its lengths in steps and in tokens, without pixels."""
        return tuple(row.sizes for row in self._rows)

    def table(self, columns: Sequence[str]) -> pa.Table:
        """The named columns of every episode, in order; columns of steps are named `IN_STEPS + "height"`."""
        groups: dict[str, list[int]] = {}
        for row in self._rows:
            groups.setdefault(row.shard, []).append(row.row_group)
        tables = [_read(self.directory / shard, row_groups, columns) for shard, row_groups in groups.items()]
        return pa.concat_tables(tables) if tables else SCHEMA.empty_table()

    def _index(self, file: dict, subset: str | None) -> Iterator[_Row]:
        if subset not in (None, file["subset"]):
            return
        path = self.directory / file["shard"]
        count = _metadata(path).num_row_groups
        if count != file["episodes_written"]:
            raise DatasetError(
                f"{path} has {count} episodes where the manifest says {file['episodes_written']}; convert again"
            )
        names = ["episode_id", "subset", "split", IN_STEPS + "height", IN_STEPS + "width"]
        for group, row in enumerate(_read(path, list(range(count)), names).to_pylist()):
            sizes = tuple((step["height"], step["width"]) for step in row["steps"])
            yield _Row(file["shard"], group, row["episode_id"], row["subset"], row["split"], sizes)

    def _read(self, index: int, columns: Sequence[str] | None) -> dict:
        row = self._rows[index]
        return _read(self.directory / row.shard, [row.row_group], columns).to_pylist()[0]


def read_manifest(directory: Path) -> dict:
    """The manifest of a complete conversion; DatasetError where there is none or another schema version."""
    path = directory / MANIFEST
    if not path.is_file():
        raise DatasetError(
            f"{directory} has no {MANIFEST}: it holds no shards, or their conversion did not finish; "
            "run `vlm-agent convert` into an empty folder"
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        version, _ = manifest["schema_version"], manifest["files"]
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path} is not a manifest of shards: {error}") from None
    if version != SCHEMA_VERSION:
        raise DatasetError(
            f"{path} has schema version {version}, this program reads {SCHEMA_VERSION}; convert the data again"
        )
    return manifest


def write_manifest(directory: Path, manifest: dict) -> None:
    """Written when everything else is: whoever finds a manifest finds a complete conversion."""
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
        raise DatasetError(f"{path} is in the manifest but not on disk; convert again") from None
    except pa.ArrowInvalid as error:
        raise DatasetError(f"{path} is not a Parquet file: {error}") from None


@lru_cache(maxsize=256)
def _parsed_footer(path: Path, size: int, mtime_ns: int) -> pq.FileMetaData:
    """Kept, so that reading an episode does not parse it again; memory only, so it survives a fork."""
    return pq.read_metadata(path)


def _read(path: Path, row_groups: list[int], columns: Sequence[str] | None) -> pa.Table:
    metadata = _metadata(path)
    try:
        # pre_buffer and use_threads would start threads, which a forked worker does not have and waits for in vain.
        with pq.ParquetFile(path, metadata=metadata, pre_buffer=False, page_checksum_verification=True) as file:
            return file.read_row_groups(row_groups, columns=columns, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        groups = f"row group {row_groups[0]}" if len(row_groups) == 1 else f"its {len(row_groups)} row groups"
        raise DatasetError(f"{path}: {groups} cannot be read: {error}; convert again") from None
