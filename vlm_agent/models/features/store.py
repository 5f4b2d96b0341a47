"""The features of all screens in a folder of shards, memory-mapped.

DIR/manifest.json                        written last: extractor, form, size, dtype, shards, sha256 of each file
DIR/google_apps/NAME.npy                 float16 (steps, T, D): the steps of shard google_apps/NAME.parquet in order
DIR/google_apps/NAME.pixels.npy          uint8 (steps, 16): a digest of each step's decoded pixels
DIR/google_apps/NAME.sums.npy            uint32 (steps,): the CRC-32 of each step's features
DIR/.features/                           the plan, the lock, and an entry for each complete shard
"""

import json
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path, PurePosixPath
from tokenize import TokenError

import numpy as np

from vlm_agent.datasets.shards.dataset import MANIFEST, ShardDataset, manifest_digest
from vlm_agent.errors import CheckpointError, DatasetError, remedy_of_missing
from vlm_agent.files import kind_problem, read_checked, sha256_of
from vlm_agent.models.features import extractor_kind, feature_shape
from vlm_agent.recipe.model import FeatureForm, FeatureSettings

VERSION = 1
DTYPE = "float16"
DIGEST_SIZE = 16
SUM_SIZE = 4
FEATURES, PIXELS, SUMS = ".npy", ".pixels.npy", ".sums.npy"
"""Name endings of the files of a shard."""

REMEDY = "move it away and run the same `vlm-agent features` again to restore it"


@dataclass(frozen=True)
class FeatureFile:
    """The features of one shard. `shard`: its path in the folder of shards. `steps`: the number of its steps.
    `sums_sha256`: digest of the file of checksums."""

    shard: str
    steps: int
    sha256: str
    pixels_sha256: str
    sums_sha256: str

    def content(self) -> dict:
        """The file as an entry of the manifest."""
        names = {"features": name_of(self.shard, FEATURES), "pixels": name_of(self.shard, PIXELS)}
        return {"shard": self.shard} | names | asdict(self)

    @classmethod
    def read(cls, content: dict) -> "FeatureFile":
        return cls(**{field.name: content[field.name] for field in fields(cls)})


@dataclass(frozen=True)
class UsedExtractor:
    """The extractor in a manifest or plan: the keys of `FeatureSettings`, `Extractor.digest` and its precision."""

    extractor: str
    checkpoint: str | None
    form: FeatureForm
    digest: str
    precision: str


@dataclass(frozen=True)
class ReadShards:
    """The shards in a manifest or plan. `manifest_sha256`: `manifest_digest`."""

    manifest_sha256: str


@dataclass(frozen=True)
class _Manifest:
    """What manifest.json must hold, among more."""

    features_version: int
    extractor: UsedExtractor
    tokens: int
    size: int
    shards: ReadShards
    files: list[FeatureFile]


def name_of(shard: str, ending: str) -> str:
    """The path of a shard's file with this ending in the folder."""
    return str(PurePosixPath(shard).with_suffix(ending))


def row_sum(row: np.ndarray) -> int:
    """The CRC-32 of the features of a step: (T, D)."""
    return zlib.crc32(np.ascontiguousarray(row).data.cast("B"))


def read_feature_manifest(folder: Path) -> dict:
    """The manifest of a complete folder. Raises DatasetError where it is missing, damaged or of another version."""
    path = folder / MANIFEST
    if not path.is_file():
        raise DatasetError(
            f"{folder} has no {MANIFEST}: it is not a folder of features, or its extraction is incomplete; run the "
            "same `vlm-agent features` again to resume"
        )
    manifest = read_checked(path, REMEDY)
    version = manifest.get("features_version") if isinstance(manifest, dict) else None
    if version not in (None, VERSION):
        raise DatasetError(
            f"{path} has features_version {version}, this program reads {VERSION}; run `vlm-agent features` again into "
            "another folder"
        )
    if (problem := kind_problem(json.dumps(manifest).encode(), _Manifest)) is not None:
        raise DatasetError(
            f"{path} is not a manifest of features: {problem}; choose the output of `vlm-agent features`"
        )
    return manifest


def open_array(path: Path, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """A memory-mapped array of this dtype and shape. Raises DatasetError for a file that is missing, cut short or
    holds another array."""
    try:
        stat = path.stat()
        array = _mapped(path, stat.st_size, stat.st_mtime_ns)
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing; {remedy_of_missing(REMEDY)}") from None
    except _DAMAGED_HEADER as error:
        reason = str(error).partition("\n")[0]
        raise DatasetError(f"{path} is damaged ({reason}); {REMEDY}") from None
    if array.dtype != np.dtype(dtype) or array.shape != shape:
        raise DatasetError(f"{path} holds {array.dtype} {array.shape}, and {dtype} {shape} is expected; {REMEDY}")
    return array


def check_digest(path: Path, sha256: str) -> None:
    """Reads the whole file. Raises DatasetError where it has another SHA-256."""
    if sha256_of([path]) != sha256:
        raise DatasetError(f"{path} is damaged (its SHA-256 differs from the manifest's); {REMEDY}")


_DAMAGED_HEADER = (ValueError, EOFError, TypeError, OverflowError, SyntaxError, TokenError, MemoryError)
"""NumPy's errors for a header that it cannot parse, or an array that the file cannot hold."""


@lru_cache(maxsize=128)
def _mapped(path: Path, size: int, mtime_ns: int) -> np.ndarray:
    """Cached, so that a step does not parse the header again. Few, because each mapping keeps a file descriptor, as
    does every array that still refers to one. A fork may use it."""
    return np.lib.format.open_memmap(path, mode="r")


def pixel_digest(pixels: np.ndarray) -> bytes:
    """16 bytes that identify uint8 (height, width, 3) pixels, their shape included.

    PNG and WebP decode to the same pixels everywhere, JPEG only with the same decoder.
    """
    digest = blake2b(str(pixels.shape).encode(), digest_size=DIGEST_SIZE)
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest()


class PixelIndex:
    """Row numbers by pixel digest, 24 bytes a row: both halves of each digest, sorted by the first, and its row."""

    def __init__(self, digests: Sequence[np.ndarray]) -> None:
        """`digests`: uint8 (rows, 16) arrays, whose rows are numbered through in order."""
        halves = np.concatenate([np.zeros((0, 2), ">u8"), *(np.asarray(part).view(">u8") for part in digests)])
        order = np.argsort(halves[:, 0], kind="stable")
        self._first = halves[order, 0].astype(np.uint64)
        self._second = halves[order, 1].astype(np.uint64)
        self._rows = order

    def row(self, digest: bytes) -> int | None:
        """The first row with this digest; None where no row has it."""
        first, second = np.frombuffer(digest, ">u8").astype(np.uint64)
        start, end = (int(np.searchsorted(self._first, first, side)) for side in ("left", "right"))
        same = np.flatnonzero(self._second[start:end] == second)
        return int(self._rows[start + same[0]]) if len(same) else None


class FeatureStore:
    """A complete folder of features. Each step is compared with its checksum when it is read.

    Safe to share between threads, to pickle, and to fork into DataLoader workers.

    `manifest`: the content of its manifest.json. Raises DatasetError if the folder has none (an incomplete extraction).
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.manifest = read_feature_manifest(self.folder)
        self._files = {file.shard: file for file in map(FeatureFile.read, self.manifest["files"])}

    @property
    def settings(self) -> FeatureSettings:
        """The extractor, its checkpoint and the form."""
        return FeatureSettings.of_model(self.manifest["extractor"])

    @property
    def digest(self) -> str:
        """`Extractor.digest` of the extractor that computed the features."""
        return self.manifest["extractor"]["digest"]

    @property
    def precision(self) -> str:
        """`Extractor.precision` of the extractor."""
        return self.manifest["extractor"]["precision"]

    @property
    def shape(self) -> tuple[int, int]:
        """(T, D)."""
        return self.manifest["tokens"], self.manifest["size"]

    def check(
        self, dataset: ShardDataset, settings: FeatureSettings, digest: str | None = None, precision: str | None = None
    ) -> None:
        """Raises DatasetError, which names file and remedy, unless the folder holds these features of all the shards.

        `digest`, `precision`: those of the extractor of a trained model, None before training. A checkpoint under
        another name than in the manifest is compared by its weights. Features are checked by existence, header and size
        here, and each step by its checksum when it is read (`steps`), because all of them may be hundreds of gigabytes.
        """
        self.check_extractor(settings, digest, precision)
        if self.manifest["shards"]["manifest_sha256"] != manifest_digest(dataset.directory):
            raise DatasetError(
                f"{self.folder / MANIFEST} is of other shards than {dataset.directory} ({MANIFEST} differs); "
                f"{extraction_remedy(settings, dataset.directory, precision)}"
            )
        for shard, steps in dataset.steps_by_shard.items():
            self._check_file(shard, steps, dataset.directory)

    def check_extractor(
        self, settings: FeatureSettings, digest: str | None = None, precision: str | None = None
    ) -> None:
        """The checks of `check` that need no shards."""
        remedy = extraction_remedy(settings, precision=precision)
        own = self.settings
        for key in ("extractor", "form"):
            if getattr(own, key) != getattr(settings, key):
                raise DatasetError(
                    f"{self.folder / MANIFEST} has {key} {getattr(own, key)}, and model.features.{key} is "
                    f"{getattr(settings, key)}; {remedy}, or change model.features.{key}"
                )
        if self.shape != feature_shape(settings):
            raise DatasetError(
                f"{self.folder / MANIFEST} has features of size {self.shape} (tokens, numbers), and model.features has "
                f"{feature_shape(settings)}; {remedy}"
            )
        if (digest or self._digest_now(settings)) != self.digest:
            raise DatasetError(
                f"{self.folder / MANIFEST} is of another checkpoint of {own.extractor} ({own.checkpoint or 'default'}) "
                f"than {'model.features' if digest is None else 'that of the trained model'} "
                f"({settings.checkpoint or 'default'}); {remedy}"
            )
        if precision not in (None, self.precision):
            raise DatasetError(
                f"{self.folder / MANIFEST} has features computed in {self.precision}, and the model was trained on "
                f"features computed in {precision}; {remedy}"
            )

    def _digest_now(self, settings: FeatureSettings) -> str:
        if settings.checkpoint == self.settings.checkpoint:
            return self.digest
        try:
            return extractor_kind(settings).digest(settings)
        except CheckpointError as error:
            raise DatasetError(
                f"{self.folder / MANIFEST} is of checkpoint {self.settings.checkpoint or 'default'}, and "
                f"model.features.checkpoint, {settings.checkpoint or 'default'}, cannot be compared: {error}"
            ) from None

    def _check_file(self, shard: str, steps: int, shards: Path) -> None:
        path, file = self.folder / name_of(shard, FEATURES), self._files.get(shard)
        remedy = extraction_remedy(self.settings, shards, self.precision)
        if file is None:
            raise DatasetError(f"{self.folder / MANIFEST} lacks {path.name}; {remedy}")
        if file.steps != steps:
            raise DatasetError(
                f"{path} has the features of {file.steps} steps, and {shards / shard} has {steps}; {remedy}"
            )
        self._features(shard)
        self._pixels(shard)

    def steps(self, dataset: ShardDataset, index: int) -> "EpisodeFeatures":
        """The features of an episode of the data set, by number of the step.

        Raises DatasetError for a file that is missing, cut short or of another size.
        """
        shard, first = dataset.place(index)
        self._features(shard)
        return EpisodeFeatures(self, shard, first, len(dataset.screen_sizes[index]))

    def find(self, pixels: np.ndarray) -> np.ndarray | None:
        """float16 (T, D) of a uint8 (height, width, 3) screen of the shards; None for other pixels, such as a grey
        screen.

        The first call reads the digests of all steps: 24 bytes of memory a step.
        """
        row = self._index.row(pixel_digest(pixels))
        if row is None:
            return None
        shards, ends = self._ends
        number = bisect_right(ends, row)
        return self.row(shards[number], row - (ends[number] - self._files[shards[number]].steps))

    def row(self, shard: str, number: int) -> np.ndarray:
        """Memory-mapped float16 (T, D): the features of a step of a shard.

        Raises DatasetError as `steps`, and where they differ from their checksum.
        """
        row = self._features(shard)[number]
        if row_sum(row) != self._sums_of(shard)[number]:
            raise DatasetError(
                f"{self.folder / name_of(shard, FEATURES)} is damaged (the checksum of step {number} differs); {REMEDY}"
            )
        return row

    @cached_property
    def _ends(self) -> tuple[list[str], list[int]]:
        """The shards, and the number of rows up to the end of each."""
        return list(self._files), list(accumulate(file.steps for file in self._files.values()))

    @cached_property
    def _index(self) -> PixelIndex:
        # Copies, because a mapping keeps its file open for as long as an array refers to it.
        for shard, file in self._files.items():
            check_digest(self.folder / name_of(shard, PIXELS), file.pixels_sha256)
        return PixelIndex([np.array(self._pixels(shard)) for shard in self._files])

    @cached_property
    def _read_sums(self) -> dict[str, np.ndarray]:
        return {}

    def _sums_of(self, shard: str) -> np.ndarray:
        """uint32 (steps,): the checksums of the steps of a shard, read once, 4 bytes of memory a step. Raises
        DatasetError for a missing or damaged file."""
        if shard not in self._read_sums:
            path, file = self.folder / name_of(shard, SUMS), self._files[shard]
            sums = np.array(open_array(path, "uint32", (file.steps,)))  # a mapping would keep the file open
            check_digest(path, file.sums_sha256)
            self._read_sums[shard] = sums
        return self._read_sums[shard]

    def _features(self, shard: str) -> np.ndarray:
        return open_array(self.folder / name_of(shard, FEATURES), DTYPE, (self._files[shard].steps, *self.shape))

    def _pixels(self, shard: str) -> np.ndarray:
        return open_array(self.folder / name_of(shard, PIXELS), "uint8", (self._files[shard].steps, DIGEST_SIZE))

    def __getstate__(self) -> dict:
        """Without the index, which is larger than everything else and quick to read."""
        return {"folder": self.folder, "manifest": self.manifest, "_files": self._files}


class EpisodeFeatures(Sequence[np.ndarray]):
    """Memory-mapped float16 (T, D) of each step of an episode, compared with its checksum when it is read."""

    def __init__(self, store: FeatureStore, shard: str, first: int, count: int) -> None:
        self._store, self._shard, self._rows = store, shard, range(first, first + count)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, step: int) -> np.ndarray:  # type: ignore[override]  # no slices
        return self._store.row(self._shard, self._rows[step])


def extraction_remedy(settings: FeatureSettings, shards: Path | str | None = None, precision: str | None = None) -> str:
    """The command that extracts the features, as the end of an error."""
    words = f"`vlm-agent features {shards or 'SHARDS'} --extractor {settings.extractor} --form {settings.form}"
    checkpoint = "" if settings.checkpoint is None else f" --checkpoint {settings.checkpoint}"
    bf16 = " --bf16" if precision == "bfloat16" else ""
    return f"extract them with {words}{checkpoint}{bf16} --output DIR` and set data.features to DIR"
