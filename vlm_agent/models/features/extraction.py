"""The features of one shard: threads read, decode and resize its screens ahead of the model, which writes its files."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write
from vlm_agent.files.checked_json import read_checked, write_checked
from vlm_agent.files.threads import ahead
from vlm_agent.models.features.extractor import Extractor, NonFiniteFeaturesError, Preprocess
from vlm_agent.models.features.store.layout import (
    DIGEST_SIZE,
    DTYPE,
    FeatureFile,
    features_name,
    pixels_name,
    row_sum,
    sums_name,
)
from vlm_agent.models.features.store.pixels import pixel_digest

_MOST_WORKERS = 8


def default_workers() -> int:
    """Half of the cores that this process may use, at most eight. Decoding, resizing and hashing release the GIL."""
    return max(1, min(_MOST_WORKERS, len(os.sched_getaffinity(0)) // 2))


class LoadedStep(NamedTuple):
    """`screen`: uint8 (3, height, width) as the extractor takes it. `digest`: of the pixels before."""

    episode: str
    number: int
    screen: np.ndarray
    digest: bytes


def load_episode(dataset: ShardDataset, preprocess: Preprocess, index: int) -> list[LoadedStep]:
    pixels = [step.screenshot for step in dataset[index].steps if step.screenshot is not None]
    name = dataset.ids[index]
    return [LoadedStep(name, number, preprocess(screen), pixel_digest(screen)) for number, screen in enumerate(pixels)]


class ArrayWriter:
    """Appends to a .npy file of a known shape, and hashes it."""

    def __init__(self, path: Path, dtype: str, shape: tuple[int, ...]) -> None:
        self._file = path.open("wb")
        self._digest = hashlib.sha256()
        np.lib.format.write_array_header_1_0(
            self, {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
        )

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._digest.update(data)

    def append(self, array: np.ndarray) -> None:
        self.write(np.ascontiguousarray(array).data.cast("B"))

    def close(self) -> str:
        """The sha256 of the file."""
        self._file.close()
        return self._digest.hexdigest()


@contextmanager
def _array_file(path: Path, dtype: str, shape: tuple[int, ...]) -> Iterator[ArrayWriter]:
    with atomic_write(path) as temporary:
        writer = ArrayWriter(temporary, dtype, shape)
        try:
            yield writer
        finally:
            writer.close()


def read_entry(path: Path, output: Path) -> FeatureFile | None:
    """The entry of a complete shard; None if a file of it is missing or has another size than the entry says."""
    if not path.is_file():
        return None
    content = read_checked(path, "remove it and run the same command again")
    for name, size in content["sizes"].items():
        file = output / name
        if not file.is_file() or file.stat().st_size != size:
            return None
    return FeatureFile.read(content["file"])


class ShardExtraction:
    """Writes the files of shards to `output`. `workers`: threads that load episodes ahead of the model."""

    def __init__(
        self, dataset: ShardDataset, extractor: Extractor, output: Path, batch_size: int, workers: int
    ) -> None:
        self._dataset, self._extractor, self._output = dataset, extractor, output
        self._batch_size, self._workers = batch_size, workers

    def extract(self, shard: str, episodes: Sequence[int], entry: Path, report: Callable[[int], None]) -> FeatureFile:
        """Writes the files of a shard, then its `entry`. `episodes`: all episodes of the shard, in order. `report` is
        called with the number of steps since the last call.

        Raises DatasetError that names episode and step where features are not finite.
        """
        steps = self._dataset.steps_by_shard[shard]
        features, pixels, sums = (self._output / name(shard) for name in (features_name, pixels_name, sums_name))
        with ExitStack() as stack:
            writer = stack.enter_context(_array_file(features, DTYPE, (steps, *self._extractor.shape)))
            pixel_writer = stack.enter_context(_array_file(pixels, "uint8", (steps, DIGEST_SIZE)))
            sum_writer = stack.enter_context(_array_file(sums, "uint32", (steps,)))
            done = 0
            for batch in self._batches(episodes):
                done += len(batch)
                rows = np.ascontiguousarray(self._features(batch))
                writer.append(rows)
                sum_writer.append(np.array([row_sum(row) for row in rows], np.uint32))
                pixel_writer.append(np.frombuffer(b"".join(step.digest for step in batch), np.uint8))
                report(len(batch))
            if done != steps:
                raise DatasetError(
                    f"{self._dataset.directory / shard} has {done} steps, and its index has {steps}; run the same "
                    "`vlm-agent convert` again to restore it"
                )
            file = FeatureFile(shard, steps, writer.close(), pixel_writer.close(), sum_writer.close())
        paths = (features, pixels, sums)
        sizes = {path.relative_to(self._output).as_posix(): path.stat().st_size for path in paths}
        write_checked(entry, {"file": file.content(), "sizes": sizes})
        return file

    def _batches(self, episodes: Sequence[int]) -> Iterator[list[LoadedStep]]:
        """Consecutive steps of the shard, `batch_size` at a time."""
        batch: list[LoadedStep] = []
        load = partial(load_episode, self._dataset, self._extractor.preprocess)
        with ahead(load, episodes, self._workers) as loaded:
            for step in chain.from_iterable(loaded):
                batch.append(step)
                if len(batch) == self._batch_size:
                    yield batch
                    batch = []
        if batch:
            yield batch

    def _features(self, batch: list[LoadedStep]) -> np.ndarray:
        try:
            return self._extractor.extract_prepared([step.screen for step in batch])
        except NonFiniteFeaturesError as error:
            step = batch[error.screen]
            raise DatasetError(
                f"{self._dataset.directory}: episode {step.episode}, step {step.number}: {error}"
            ) from None
