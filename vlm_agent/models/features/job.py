"""`vlm-agent features`: the features of all screens in a folder of shards, as a resumable job (`files/jobs.py`)."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.lib.format import dtype_to_descr, write_array_header_1_0
from rich.console import Console

import vlm_agent
from vlm_agent.datasets.shards.dataset import MANIFEST, ShardDataset, manifest_digest
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write, kind_problem, read_checked, remove_stale, sha256_of, write_checked
from vlm_agent.files.jobs import ArrayTask, ShardJob, all_done
from vlm_agent.files.threads import ahead
from vlm_agent.models.features import Extractor, NonFiniteFeaturesError, Preprocess, feature_shape, load_extractor
from vlm_agent.models.features.store import (
    DIGEST_SIZE,
    DTYPE,
    FEATURES,
    PIXELS,
    SUM_SIZE,
    SUMS,
    VERSION,
    FeatureFile,
    ReadShards,
    UsedExtractor,
    name_of,
    pixel_digest,
    row_sum,
)
from vlm_agent.recipe.model import FeatureSettings

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
        columns = {
            FEATURES: (DTYPE, (steps, *self._extractor.shape)),
            PIXELS: ("uint8", (steps, DIGEST_SIZE)),
            SUMS: ("uint32", (steps,)),
        }
        paths = {ending: self._output / name_of(shard, ending) for ending in columns}
        remove_stale(paths[FEATURES])  # the two small ones are flushed too rarely for their age to count
        with ExitStack() as stack:
            parts = {ending: stack.enter_context(atomic_write(path)) for ending, path in paths.items()}
            # Written and not mapped: a full disk, or a quota, is an error of a write, and kills a process that writes
            # to a mapping.
            files = {ending: stack.enter_context(part.open("wb")) for ending, part in parts.items()}
            for ending, (dtype, shape) in columns.items():
                about = {"descr": dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
                write_array_header_1_0(files[ending], about)
            done = 0
            for batch in self._batches(episodes):
                done += len(batch)
                if done > steps:
                    break
                rows = self._features(batch)
                files[FEATURES].write(rows.reshape(len(batch), *self._extractor.shape).tobytes())
                files[PIXELS].write(b"".join(step.digest for step in batch))
                files[SUMS].write(np.array([row_sum(row) for row in rows], np.uint32).tobytes())
                report(len(batch))
            if done != steps:
                raise DatasetError(
                    f"{self._dataset.directory / shard} has {done} steps, and its index has {steps}; run the same "
                    "`vlm-agent convert` again to restore it"
                )
            for file in files.values():
                file.flush()
            result = FeatureFile(shard, steps, *(sha256_of([parts[ending]]) for ending in columns))
        sizes = {path.relative_to(self._output).as_posix(): path.stat().st_size for path in paths.values()}
        write_checked(entry, {"file": result.content(), "sizes": sizes})
        return result

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


WORK = ".features"

_HEADER = 128
"""Bytes of the header of a .npy file."""


def extract_features(
    shards: Path,
    settings: FeatureSettings,
    output: Path,
    console: Console,
    device: torch.device,
    batch_size: int = 32,
    precision: str = "float32",
    workers: int = 1,
    task: ArrayTask | None = None,
) -> None:
    """Writes the features of all screens of `shards` to `output`; one `task` of a job array writes its share of the
    shards, and `finish` must follow after all tasks. An interrupted extraction is resumed. `workers`: threads that
    decode and resize screens ahead of the model.

    Prints first how large the output will be. Raises DatasetError where the disk lacks room for it, `output` holds
    another extraction, a screen cannot be decoded, or features are not finite.
    """
    dataset = ShardDataset(shards)
    job_of(output).check_folder()
    shape = feature_shape(settings)
    sizes = {shard: _bytes(steps, shape) for shard, steps in dataset.steps_by_shard.items()}
    total, steps = sum(sizes.values()), sum(dataset.steps_by_shard.values())
    console.print(
        f"{output}: {total:,} bytes ({total / 1e9:.2f} GB) for {steps:,} screens of {len(sizes):,} shards, "
        f"{shape[0]} x {shape[1]} {DTYPE} numbers each",
        highlight=False,
        soft_wrap=True,
    )
    _check_room(output, sum(sizes[shard] for shard in _missing(output, dataset)))
    extractor = load_extractor(settings, device, precision)
    _warn_of_crop(console, dataset, extractor)
    plan, job = _plan(dataset, extractor, batch_size, precision), job_of(output)
    one = ShardExtraction(dataset, extractor, output, batch_size, workers)
    episodes: dict[str, list[int]] = {}
    for index in range(len(dataset)):
        episodes.setdefault(dataset.place(index)[0], []).append(index)

    def work(shard: str, report: Callable[[int], None]) -> None:
        one.extract(shard, episodes[shard], job.entry_path(shard), report)

    with job.started(plan, task):
        mine = set(sizes if task is None else task.items(list(sizes)))
        waiting = {shard: dataset.steps_by_shard[shard] for shard in _missing(output, dataset) if shard in mine}
        job.fill(waiting, work, "screens", console)
        if task is None:
            _complete(output, plan, dataset, console)
        else:
            task.report(console, len(_missing(output, dataset)), f"of {len(sizes)} shard(s)")


def finish(output: Path, console: Console) -> None:
    """Writes the manifest after all tasks of a job array. Raises DatasetError if shards are missing or have changed."""
    plan = read_plan(output)
    if not Path(plan["where"]).exists():
        raise DatasetError(
            f"{plan['where']} is not there any more; run `vlm-agent features` without --finish, with the folder where "
            "the shards are now"
        )
    dataset = ShardDataset(Path(plan["where"]))
    if manifest_digest(dataset.directory) != plan["described"]["shards"]["manifest_sha256"]:
        raise DatasetError(
            f"{plan['where']} has changed since its features were extracted; extract them into another folder"
        )
    with job_of(output).locked():
        _complete(output, plan, dataset, console)


def job_of(output: Path) -> ShardJob:
    """The resumable output folder of an extraction."""
    return ShardJob.of(output, "an extraction of features", WORK)


def _plan(dataset: ShardDataset, extractor: Extractor, batch_size: int, precision: str) -> dict[str, Any]:
    """`batch_size` is part of what decides the output: a kernel on a GPU that is chosen by the batch may change the
    last bit of a feature."""
    tokens, size = extractor.shape
    described = {
        "extractor": {**extractor.settings.model_dump(), "digest": extractor.digest, "precision": precision},
        "tokens": tokens,
        "size": size,
        "dtype": DTYPE,
        "batch_size": batch_size,
        "shards": {"manifest_sha256": manifest_digest(dataset.directory)},
    }
    return {"described": described, "where": str(dataset.directory.absolute())}


def read_plan(output: Path) -> dict[str, Any]:
    """The plan in a folder. Raises DatasetError where it is missing, or lacks a key, which it names."""
    plan = job_of(output).read_plan()
    if (problem := kind_problem(json.dumps(plan).encode(), _Plan)) is not None:
        raise DatasetError(f"{job_of(output).plan_path} is damaged: {problem}; remove {output} and start again")
    return plan


@dataclass(frozen=True)
class _Described:
    extractor: UsedExtractor
    tokens: int
    size: int
    batch_size: int
    shards: ReadShards


@dataclass(frozen=True)
class _Plan:
    """What the plan must hold, among more."""

    described: _Described
    where: str


def _missing(output: Path, dataset: ShardDataset) -> list[str]:
    return [shard for shard, entry in _entries(output, dataset).items() if entry is None]


def _entries(output: Path, dataset: ShardDataset) -> dict[str, FeatureFile | None]:
    return {shard: read_entry(job_of(output).entry_path(shard), output) for shard in dataset.steps_by_shard}


def _bytes(steps: int, shape: tuple[int, int]) -> int:
    """The size of the files of a shard."""
    return steps * (shape[0] * shape[1] * 2 + DIGEST_SIZE + SUM_SIZE) + 3 * _HEADER


def _warn_of_crop(console: Console, dataset: ShardDataset, extractor: Extractor) -> None:
    sizes = Counter(size for episode in dataset.screen_sizes for size in episode)
    for (height, width), _ in sizes.most_common(1):
        share = extractor.preprocess.share(height, width)
        if share < 0.99:
            console.print(
                f"{extractor.settings.extractor} crops the centre: of screens of {height} x {width} pixels it sees "
                f"{share:.0%}. A copy of the checkpoint whose preprocessor_config.json has do_center_crop: false and "
                "size: {height, width} sees all of them",
                highlight=False,
                soft_wrap=True,
            )


def _check_room(output: Path, needed: int) -> None:
    place = output.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed > free:
        raise DatasetError(
            f"{output} needs {needed:,} more bytes, and its disk has {free:,} free; choose another disk, or a smaller "
            "output: --form pooled, or convert fewer episodes (--mixture)"
        )


def _complete(output: Path, plan: dict[str, Any], dataset: ShardDataset, console: Console) -> None:
    """Writes the manifest. The caller must hold the folder."""
    files = all_done(_entries(output, dataset), "extracted").values()
    described, steps = plan["described"], sum(file.steps for file in files)
    manifest = {
        "features_version": VERSION,
        "vlm_agent_version": vlm_agent.__version__,
        **{key: described[key] for key in ("extractor", "tokens", "size", "dtype")},
        "steps": steps,
        "shards": described["shards"],
        "files": [file.content() for file in files],
    }
    write_checked(output / MANIFEST, manifest)
    about = described["extractor"]
    console.print(
        f"{output}: features of {steps:,} screens in {len(files):,} files, {about['extractor']} {about['form']} "
        f"{described['tokens']} x {described['size']}, extractor {about['digest'][:12]}…",
        highlight=False,
        soft_wrap=True,
    )
