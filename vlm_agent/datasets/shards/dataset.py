"""Shards: Parquet files with one row and one row group per episode, and a manifest.

    DIR/manifest.json                             written last: counts, schema version, sources, options
    DIR/index.parquet                             a copy of the small columns of all shards
    DIR/google_apps/google_apps-00000-of-00001.parquet
    DIR/quarantine.jsonl                          records that could not be used, and the reasons

With a row group per episode, one episode is read without the bytes of the others. Columns are stored separately, so all
other columns are read without the pixels. `datasets.load_dataset("parquet", data_files=…)` decodes the screens as
images. Column chunks have checksums, which are verified when they are read (`vlm_agent/files/parquet.py`).
"""

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from vlm_agent.datasets.selection import check_subsets
from vlm_agent.datasets.shards.schema import (
    ALL_BUT_PIXELS,
    ALL_COLUMNS,
    IN_STEPS,
    INDEX,
    INDEX_SCHEMA,
    INDEXED,
    VERSION,
    check_is_shard,
    empty_table,
    from_row,
)
from vlm_agent.datasets.sources import SPLITS
from vlm_agent.episodes import Episode, Step
from vlm_agent.errors import DatasetError
from vlm_agent.files import content_of, read_checked
from vlm_agent.files.parquet import Footer, check_columns, open_parquet, read_footer

MANIFEST = "manifest.json"
WORK_FOLDERS = {"convert": ".conversion", "annotate": ".annotation"}
"""Commands that write shards, and the folder of each that holds its plan."""

_REMEDY = "move it away and run the same `vlm-agent convert` or `annotate` again to restore it"
_REMEDY_OF_INDEX = "move it away and run `vlm-agent convert --finish --output` with this folder to write it again"
_EPISODES_AT_ONCE = 64


class ScreenSizes:
    """The (height, width) in pixels of each screen of each episode, from the index."""

    def __init__(self, offsets: np.ndarray, heights: np.ndarray, widths: np.ndarray) -> None:
        self._offsets, self._heights, self._widths = offsets, heights, widths

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __iter__(self) -> Iterator[tuple[tuple[int, int], ...]]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> tuple[tuple[int, int], ...]:
        index = range(len(self))[index]
        here = slice(self._offsets[index], self._offsets[index + 1])
        return tuple(zip(self._heights[here].tolist(), self._widths[here].tolist(), strict=True))


class ShardDataset:
    """The episodes of a converted folder, in the order of its manifest. `[i]` reads one episode with its pixels.

    `split` and `subset` select episodes. Safe to share between threads, to pickle, and to fork into DataLoader workers:
    no file stays open between reads.

    Raises DatasetError if the folder has no manifest (an incomplete conversion), one of an unknown schema version, or
    no index; for an unknown split or subset; when an episode is read from a shard that does not match the index; and
    for a screen that cannot be decoded.
    """

    def __init__(self, directory: Path, split: str | None = None, subset: str | None = None) -> None:
        if split is not None and split not in SPLITS:
            raise DatasetError(f"split {split!r} does not exist; choose one of {', '.join(SPLITS)}")
        self.directory = Path(directory)
        self.manifest = read_manifest(self.directory)
        names = ("episode_id", "subset", "split", "shard", "row_group", IN_STEPS + "height", IN_STEPS + "width")
        index = read_index(self.directory, names)
        if subset is not None:
            check_subsets([subset], index["subset"].unique().to_pylist(), "subset")
        kept = np.ones(index.num_rows, bool)
        for column, wanted in (("split", split), ("subset", subset)):
            if wanted is not None:
                kept &= pc.equal(index[column], wanted).to_numpy()
        self._kept = np.flatnonzero(kept)
        self._index = index.take(self._kept).combine_chunks()
        self._row_groups = self._index["row_group"].to_numpy()

    def __len__(self) -> int:
        return len(self._row_groups)

    def check_shards(self) -> None:
        """Raises DatasetError where the file of a shard is missing: statistics read the index alone."""
        names = self._index["shard"].unique().to_pylist()
        missing = [name for name in names if not (self.directory / name).is_file()]
        if missing:
            raise DatasetError(
                f"{self.directory} lacks {len(missing):,} of {len(names):,} shards, {missing[0]} first; restore them "
                "from a copy, or run the same `vlm-agent convert` again"
            )

    def __getitem__(self, index: int) -> Episode:
        """The episode with its screens as uint8 (height, width, 3) arrays. Points are the stored float32 values."""
        return self.decoded(self.row(index))

    def row(self, index: int, columns: Sequence[str] | None = None) -> dict:
        """The episode as it is stored (`schema.episode_row`), with its screens encoded, or with these columns alone."""
        index = range(len(self))[index]
        path = self.directory / self._index["shard"][index].as_py()
        row = read_row_groups(path, [int(self._row_groups[index])], columns).to_pylist()[0]
        expected = self._index["episode_id"][index].as_py()
        if row["episode_id"] != expected:
            raise DatasetError(f"{path} has episode {row['episode_id']}, the index {expected}; {_REMEDY}")
        return row

    def decoded(self, row: dict, first: int = 0) -> Episode:
        """The episode of a row of `row`, whose first step has the number `first`. Raises DatasetError that names
        folder, episode and step, where a screen cannot be decoded."""
        try:
            return from_row(row, first)
        except DatasetError as error:
            raise DatasetError(f"{self.directory}: {error}; convert the data again") from None

    def step(self, index: int, number: int) -> Step:
        """Step `number` of an episode. Only its screen is decoded, which is most of the cost of reading."""
        row = self.row(index)
        return self.decoded(row | {"steps": [row["steps"][number]]}, number).steps[0]

    def steps(self, index: int, first: int, last: int) -> Episode:
        """The episode with only the steps `first` … `last`-1. No other screen is decoded."""
        row = self.row(index)
        return self.decoded(row | {"steps": row["steps"][first:last]}, first)

    def __iter__(self) -> Iterator[Episode]:
        return (self[index] for index in range(len(self)))

    def without_pixels(self, index: int) -> Episode:
        """The episode with every screenshot None. The pixels are not read."""
        return from_row(self.row(index, ALL_BUT_PIXELS))

    def each_without_pixels(self, episodes: Sequence[int]) -> Iterator[Episode]:
        """Episodes of these numbers, ascending, as `without_pixels` reads them one by one, in larger reads."""
        for start in range(0, len(episodes), _EPISODES_AT_ONCE):
            part = self.table(ALL_BUT_PIXELS, episodes[start : start + _EPISODES_AT_ONCE])
            yield from map(from_row, part.to_pylist())

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The id of each episode."""
        return tuple(self._index["episode_id"].to_pylist())

    @cached_property
    def subsets(self) -> tuple[str, ...]:
        """The subset of each episode."""
        return tuple(map(sys.intern, self._index["subset"].to_pylist()))

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """The split of each episode."""
        return tuple(map(sys.intern, self._index["split"].to_pylist()))

    @cached_property
    def screen_sizes(self) -> ScreenSizes:
        steps = self._index["steps"].combine_chunks()
        sizes = steps.flatten()
        offsets = np.concatenate([[0], np.cumsum(pc.list_value_length(steps).to_numpy())])
        return ScreenSizes(offsets, *(sizes.field(name).to_numpy() for name in ("height", "width")))

    @property
    def steps_by_shard(self) -> dict[str, int]:
        """The number of steps in each shard of the folder, of all splits and subsets, in the manifest's order."""
        return self._steps[0]

    def place(self, index: int) -> tuple[str, int]:
        """The shard of an episode, and the number of steps before it in that shard."""
        return self._index["shard"][index].as_py(), int(self._steps[1][index])

    @cached_property
    def _steps(self) -> tuple[dict[str, int], np.ndarray]:
        """The steps of each shard, and int64 (episodes,): the number of steps before each episode in its shard."""
        index = read_index(self.directory, ("shard", IN_STEPS + "height"))
        shards = index["shard"].combine_chunks().dictionary_encode()
        numbers, lengths = shards.indices.to_numpy(), pc.list_value_length(index["steps"]).to_numpy().astype(np.int64)
        counts = np.bincount(numbers, lengths, len(shards.dictionary)).astype(np.int64)
        before = np.cumsum(lengths) - lengths - (np.cumsum(counts) - counts)[numbers]
        return dict(zip(shards.dictionary.to_pylist(), counts.tolist(), strict=True)), before[self._kept]

    def table(self, columns: Sequence[str], episodes: Sequence[int] | None = None) -> pa.Table:
        """The columns of every episode, or of `episodes`, which are numbers in ascending order.

        A column of the steps has a name like `IN_STEPS + "height"`. Columns of `INDEXED` are read from the index; other
        columns require reading every shard. Raises DatasetError for an unknown column.
        """
        if unknown := set(columns) - set(ALL_COLUMNS):
            raise DatasetError(
                f"shards have no column {', '.join(sorted(unknown))}; they have {', '.join(ALL_COLUMNS)}"
            )
        chosen = np.arange(len(self)) if episodes is None else np.asarray(episodes, np.int64)
        if set(columns) <= set(INDEXED):
            return read_index(self.directory, columns).take(self._kept[chosen])
        groups: dict[str, list[int]] = {}
        for shard, row_group in zip(
            self._index["shard"].take(chosen).to_pylist(), self._row_groups[chosen], strict=True
        ):
            groups.setdefault(shard, []).append(int(row_group))
        tables = [read_row_groups(self.directory / shard, numbers, columns) for shard, numbers in groups.items()]
        tables = [table.replace_schema_metadata(None) for table in tables]
        return pa.concat_tables(tables) if tables else empty_table(columns)


def read_index(folder: Path, columns: Sequence[str]) -> pa.Table:
    """The columns (of `INDEXED`, `shard` and `row_group`) of every episode.

    Raises DatasetError for an index that is missing or damaged.
    """
    with open_parquet(folder / INDEX, _REMEDY_OF_INDEX) as file:
        check_columns(folder / INDEX, file.schema, INDEX_SCHEMA, INDEX_SCHEMA.names, _REMEDY_OF_INDEX)
        return file.read(columns)


def read_row_groups(path: Path, numbers: list[int], columns: Sequence[str] | None) -> pa.Table:
    """The columns, or all of them, of these row groups of a shard, one an episode.

    Raises DatasetError for a shard that is missing, damaged, or has fewer row groups.
    """
    try:
        stat = path.stat()
    except FileNotFoundError:
        raise DatasetError(f"{path} is in the index but not on disk; {_REMEDY}") from None
    footer = _footer(path, stat.st_size, stat.st_mtime_ns)
    if max(numbers) >= footer.metadata.num_row_groups:
        raise DatasetError(
            f"{path} has {footer.metadata.num_row_groups} episodes, fewer than the index says; {_REMEDY}"
        )
    with open_parquet(path, _REMEDY, footer) as file:
        return file.read(columns, numbers)


@lru_cache(maxsize=32)
def _footer(path: Path, size: int, mtime_ns: int) -> Footer:
    """A cached footer, so that reading an episode does not parse it again.

    The cache is small, because a footer has 18 kB per episode. It is only memory, so a fork may use it.
    """
    footer = read_footer(path, _REMEDY)
    check_is_shard(path, footer.metadata.schema.to_arrow_schema(), _REMEDY)
    return footer


def read_manifest(directory: Path) -> dict:
    """The manifest of a complete conversion. Raises DatasetError without one, and for an unknown schema version."""
    path = directory / MANIFEST
    if not path.is_file():
        raise DatasetError(f"{directory} has no {MANIFEST}: {_why_none(directory)}")
    manifest = read_checked(path, _REMEDY, _Manifest)
    if (version := manifest["schema_version"]) != VERSION:
        raise DatasetError(f"{path} has schema version {version}, this program reads {VERSION}; convert the data again")
    return manifest


def _why_none(directory: Path) -> str:
    for command, work in WORK_FOLDERS.items():
        if (directory / work).is_dir():
            return (
                f"it is incomplete; run the same `vlm-agent {command}` again to resume, or `vlm-agent {command} "
                "--finish` after a job array"
            )
    return "it is not a folder of shards; name the output of a finished `vlm-agent convert`"


def title_of(manifest: Mapping) -> str | None:
    """What the shards hold, for readers: source and subsets, "aitw (general, install)". None without a source."""
    source = manifest.get("source")
    subsets = sorted({file["subset"] for file in manifest.get("files", ()) if file.get("subset")})
    return None if source is None else f"{source} ({', '.join(subsets)})" if subsets else str(source)


def manifest_content(directory: Path) -> bytes:
    """The bytes of the manifest without its checksum. They identify the shards: they have the sha256 of each source
    file. Raises DatasetError where damaged."""
    return content_of(directory / MANIFEST, _REMEDY)


def manifest_digest(directory: Path) -> str:
    """The sha256 of `manifest_content`, by which other files refer to the shards."""
    return hashlib.sha256(manifest_content(directory)).hexdigest()


class _Counts(BaseModel):
    """Counts that a manifest or one of its files may have, and other keys."""

    model_config = ConfigDict(extra="allow")

    steps_read: int = 0
    steps_written: int = 0
    steps_quarantined: int = 0
    steps_left_out: int = 0
    episodes_written: int = 0
    points_moved: int = 0
    steps_edited: int = 0
    steps_accepted: int = 0


class _File(_Counts):
    shard: str | None


class _Annotation(BaseModel):
    model_config = ConfigDict(extra="allow")

    model: str


class _Manifest(_Counts):
    """What a manifest must have, so that one of another program is refused by the name of a key."""

    schema_version: int
    files: list[_File]
    texts: dict[str, dict[str, int]] = {}
    annotation: _Annotation = _Annotation(model="")
