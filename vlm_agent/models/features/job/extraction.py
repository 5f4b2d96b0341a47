"""Extracts the features of one shard, and writes its files."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write
from vlm_agent.files.checked_json import read_checked, write_checked
from vlm_agent.models.features.extractor import Extractor, NonFiniteFeaturesError
from vlm_agent.models.features.job.loading import LoadedEpisode, loaded_episodes
from vlm_agent.models.features.job.plan import WORK
from vlm_agent.models.features.store.layout import (
    DIGEST_SIZE,
    DTYPE,
    FeatureFile,
    features_name,
    pixels_name,
    row_sum,
    sums_name,
)


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


def entry_path(output: Path, shard: str) -> Path:
    return output / WORK / f"{shard}.json"


def read_entry(output: Path, shard: str) -> FeatureFile | None:
    """The entry of a complete shard; None if a file of it is missing or has another size than the entry says."""
    path = entry_path(output, shard)
    if not path.is_file():
        return None
    content = read_checked(path, "remove it and run the same command again")
    for name, size in content["sizes"].items():
        file = output / name
        if not file.is_file() or file.stat().st_size != size:
            return None
    return FeatureFile.read(content["file"])


class ShardExtraction:
    """Writes the files of shards to `output`. `report` is called with the number of steps since the last call."""

    def __init__(
        self,
        dataset: ShardDataset,
        extractor: Extractor,
        output: Path,
        batch_size: int,
        workers: int,
        report: Callable[[int], None],
    ) -> None:
        self._dataset, self._extractor, self._output = dataset, extractor, output
        self._batch_size, self._workers, self._report = batch_size, workers, report

    def extract(self, shard: str, episodes: Sequence[int]) -> FeatureFile:
        """Writes the files of a shard, then its entry. `episodes`: all episodes of the shard, in order.

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
                pixel_writer.append(np.frombuffer(b"".join(digest for *_, digest in batch), np.uint8))
                self._report(len(batch))
            if done != steps:
                raise DatasetError(
                    f"{self._dataset.directory / shard} has {done} steps, and its index has {steps}; run the same "
                    "`vlm-agent convert` again to restore it"
                )
            file = FeatureFile(shard, steps, writer.close(), pixel_writer.close(), sum_writer.close())
        paths = (features, pixels, sums)
        sizes = {path.relative_to(self._output).as_posix(): path.stat().st_size for path in paths}
        write_checked(entry_path(self._output, shard), {"file": file.content(), "sizes": sizes})
        return file

    def _batches(self, episodes: Sequence[int]) -> Iterator[list[tuple[str, int, np.ndarray, bytes]]]:
        """Consecutive steps of the shard: (episode id, number, screen, digest), `batch_size` at a time."""
        batch: list[tuple[str, int, np.ndarray, bytes]] = []
        with loaded_episodes(self._dataset, episodes, self._extractor.preprocess, self._workers) as loaded:
            for step in _steps(loaded):
                batch.append(step)
                if len(batch) == self._batch_size:
                    yield batch
                    batch = []
        if batch:
            yield batch

    def _features(self, batch: list[tuple[str, int, np.ndarray, bytes]]) -> np.ndarray:
        try:
            return self._extractor.extract_prepared([screen for _, _, screen, _ in batch])
        except NonFiniteFeaturesError as error:
            episode, number, *_ = batch[error.screen]
            raise DatasetError(f"{self._dataset.directory}: episode {episode}, step {number}: {error}") from None


def _steps(episodes: Iterator[LoadedEpisode]) -> Iterator[tuple[str, int, np.ndarray, bytes]]:
    for episode in episodes:
        for number, (screen, digest) in enumerate(zip(episode.screens, episode.digests, strict=True)):
            yield episode.id, number, screen, digest
