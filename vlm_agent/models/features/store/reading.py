"""Reads a folder of features."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np

from vlm_agent.datasets.shards.dataset import MANIFEST, ShardDataset
from vlm_agent.errors import CheckpointError, DatasetError
from vlm_agent.models.features import extractor_digest, feature_shape
from vlm_agent.models.features.store.layout import (
    DIGEST_SIZE,
    DTYPE,
    REMEDY,
    FeatureFile,
    check_digest,
    features_name,
    open_array,
    pixels_name,
    read_feature_manifest,
    row_sum,
    shards_digest,
    sums_name,
)
from vlm_agent.models.features.store.pixels import PixelIndex, pixel_digest
from vlm_agent.recipe.model import FeatureSettings


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
        about = self.manifest["extractor"]
        return FeatureSettings(extractor=about["extractor"], checkpoint=about["checkpoint"], form=about["form"])

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
        self,
        dataset: ShardDataset,
        settings: FeatureSettings,
        digest: str | None = None,
        precision: str | None = None,
    ) -> None:
        """Raises DatasetError, which names file and remedy, unless the folder holds these features of all the shards.

        `digest`, `precision`: those of the extractor of a trained model, None before training. A checkpoint under
        another name than in the manifest is compared by its weights. Features are checked by existence, header and size
        here, and each step by its checksum when it is read (`steps`), because all of them may be hundreds of gigabytes.
        """
        self.check_extractor(settings, digest, precision)
        if self.manifest["shards"]["manifest_sha256"] != shards_digest(dataset):
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
            return extractor_digest(settings)
        except CheckpointError as error:
            raise DatasetError(
                f"{self.folder / MANIFEST} is of checkpoint {self.settings.checkpoint or 'default'}, and "
                f"model.features.checkpoint, {settings.checkpoint or 'default'}, cannot be compared: {error}"
            ) from None

    def _remedy(self, shards: Path) -> str:
        return extraction_remedy(self.settings, shards, self.precision)

    def _check_file(self, shard: str, steps: int, shards: Path) -> None:
        path, file = self.folder / features_name(shard), self._files.get(shard)
        if file is None:
            raise DatasetError(f"{self.folder / MANIFEST} lacks {path.name}; {self._remedy(shards)}")
        if file.steps != steps:
            raise DatasetError(
                f"{path} has the features of {file.steps} steps, and {shards / shard} has {steps}; "
                f"{self._remedy(shards)}"
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
        return self.find_all([pixels])[0]

    def find_all(self, screens: Sequence[np.ndarray]) -> list[np.ndarray | None]:
        """`find` for each screen."""
        rows = self._index.rows([pixel_digest(screen) for screen in screens])
        return [None if row is None else self._row(row) for row in rows]

    def _row(self, row: int) -> np.ndarray:
        shards, ends = self._ends
        number = bisect_right(ends, row)
        shard = shards[number]
        return self.row(shard, row - (ends[number] - self._files[shard].steps))

    def row(self, shard: str, number: int) -> np.ndarray:
        """Memory-mapped float16 (T, D): the features of a step of a shard.

        Raises DatasetError as `steps`, and where they differ from their checksum.
        """
        row = self._features(shard)[number]
        if row_sum(row) != self._sums.of(shard)[number]:
            raise DatasetError(
                f"{self.folder / features_name(shard)} is damaged (the checksum of step {number} differs); {REMEDY}"
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
            check_digest(self.folder / pixels_name(shard), file.pixels_sha256)
        return PixelIndex([np.array(self._pixels(shard)) for shard in self._files])

    @cached_property
    def _sums(self) -> "_Sums":
        return _Sums(self.folder, self._files)

    def _features(self, shard: str) -> np.ndarray:
        return open_array(self.folder / features_name(shard), DTYPE, (self._files[shard].steps, *self.shape))

    def _pixels(self, shard: str) -> np.ndarray:
        return open_array(self.folder / pixels_name(shard), "uint8", (self._files[shard].steps, DIGEST_SIZE))

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


class _Sums:
    """The checksums of steps, read once for each shard: 4 bytes of memory a step."""

    def __init__(self, folder: Path, files: Mapping[str, FeatureFile]) -> None:
        self._folder, self._files = folder, files
        self._read: dict[str, np.ndarray] = {}

    def of(self, shard: str) -> np.ndarray:
        """uint32 (steps,). Raises DatasetError for a missing or damaged file."""
        if shard not in self._read:
            self._read[shard] = self._load(self._files[shard])
        return self._read[shard]

    def _load(self, file: FeatureFile) -> np.ndarray:
        path = self._folder / sums_name(file.shard)
        sums = np.array(open_array(path, "uint32", (file.steps,)))  # a mapping would keep the file open
        check_digest(path, file.sums_sha256)
        return sums


def extraction_remedy(settings: FeatureSettings, shards: Path | None = None, precision: str | None = None) -> str:
    """The command that extracts the features, as the end of an error."""
    words = f"`vlm-agent features {shards or 'SHARDS'} --extractor {settings.extractor} --form {settings.form}"
    checkpoint = "" if settings.checkpoint is None else f" --checkpoint {settings.checkpoint}"
    bf16 = " --bf16" if precision == "bfloat16" else ""
    return f"extract them with {words}{checkpoint}{bf16} --output DIR` and set data.features to DIR"
