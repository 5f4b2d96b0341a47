"""Fills a folder of features, alone or as a task of a job array."""

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

import vlm_agent
from vlm_agent.datasets.shards.dataset import MANIFEST, ShardDataset
from vlm_agent.errors import DatasetError
from vlm_agent.files.checked_json import write_checked
from vlm_agent.files.console import Progress
from vlm_agent.files.jobs import ArrayTask
from vlm_agent.models.features import feature_shape, load_extractor
from vlm_agent.models.features.extractor import Extractor
from vlm_agent.models.features.job.extraction import ShardExtraction, read_entry
from vlm_agent.models.features.job.plan import FeaturePlan, job, plan_of
from vlm_agent.models.features.store.layout import DIGEST_SIZE, DTYPE, SUM_SIZE, VERSION, FeatureFile, shards_digest
from vlm_agent.recipe.model import FeatureSettings

_HEADER = 128
"""Bytes of the header of a .npy file."""


@dataclass(frozen=True)
class Options:
    """How to extract. `workers`: threads that decode and resize screens ahead of the model."""

    batch_size: int = 32
    precision: str = "float32"
    workers: int = 1


def extract_features(
    shards: Path,
    settings: FeatureSettings,
    output: Path,
    console: Console,
    device: torch.device,
    options: Options = Options(),
    task: ArrayTask | None = None,
) -> None:
    """Writes the features of all screens of `shards` to `output`; one `task` of a job array writes its share of the
    shards, and `finish` must follow after all tasks. An interrupted extraction is resumed.

    Prints first how large the output will be. Raises DatasetError where the disk lacks room for it, `output` holds
    another extraction, a screen cannot be decoded, or features are not finite.
    """
    dataset = ShardDataset(shards)
    job(output).check_folder()
    shape = feature_shape(settings)
    sizes = {shard: _bytes(steps, shape) for shard, steps in dataset.steps_by_shard.items()}
    missing = [shard for shard in sizes if read_entry(output, shard) is None]
    _announce(console, dataset, shape, output, sum(sizes.values()))
    _check_room(output, sum(sizes[shard] for shard in missing))
    extractor = load_extractor(settings, device, options.precision)
    _warn_of_crop(console, dataset, extractor)
    plan = plan_of(dataset, settings, extractor.digest, shape, options.precision, options.batch_size)
    with job(output).locked(shared=task is not None):
        job(output).write_or_verify_plan(plan.content())
        run = _Run(dataset, extractor, output, console, options)
        mine = list(sizes) if task is None else list(task.items(list(sizes)))
        run.extract(mine)
        if task is None:
            _write_manifest(output, plan, dataset)
            _summarise(console, output)
        else:
            waiting = sum(read_entry(output, shard) is None for shard in sizes)
            console.print(
                f"Task {task.index} of {task.count} is complete; {waiting} of {len(sizes)} shard(s) of all tasks are "
                "missing",
                highlight=False,
            )


def finish(output: Path, console: Console) -> None:
    """Writes the manifest after all tasks of a job array. Raises DatasetError if shards are missing or have changed."""
    plan = FeaturePlan.read(output)
    dataset = ShardDataset(plan.shards)
    if shards_digest(dataset) != plan.shards_sha256:
        raise DatasetError(
            f"{plan.shards} has changed since its features were extracted; extract them into another folder"
        )
    with job(output).locked():
        _write_manifest(output, plan, dataset)
    _summarise(console, output)


class _Run:
    def __init__(
        self, dataset: ShardDataset, extractor: Extractor, output: Path, console: Console, options: Options
    ) -> None:
        self._dataset, self._extractor, self._output = dataset, extractor, output
        self._console, self._options = console, options

    def extract(self, shards: Sequence[str]) -> None:
        """Writes the shards that have no entry yet."""
        missing = [shard for shard in shards if read_entry(self._output, shard) is None]
        if not missing:
            return
        (self._output / MANIFEST).unlink(missing_ok=True)  # it means complete
        steps = self._dataset.steps_by_shard
        episodes = _episodes_by_shard(self._dataset)
        progress = Progress(self._console, sum(steps[shard] for shard in missing), "screens")
        with progress.shown():
            done = 0

            def report(count: int) -> None:
                progress.advance(count, f"{done} of {len(missing)} shards")

            one = ShardExtraction(
                self._dataset, self._extractor, self._output, self._options.batch_size, self._options.workers, report
            )
            for shard in missing:
                one.extract(shard, episodes[shard])
                done += 1
                progress.advance(0, f"{done} of {len(missing)} shards", is_stage_end=True)


def _episodes_by_shard(dataset: ShardDataset) -> dict[str, list[int]]:
    result: dict[str, list[int]] = {}
    for index in range(len(dataset)):
        result.setdefault(dataset.place(index)[0], []).append(index)
    return result


def _bytes(steps: int, shape: tuple[int, int]) -> int:
    """The size of the files of a shard."""
    return steps * (shape[0] * shape[1] * 2 + DIGEST_SIZE + SUM_SIZE) + 3 * _HEADER


def _announce(console: Console, dataset: ShardDataset, shape: tuple[int, int], output: Path, total: int) -> None:
    steps = sum(dataset.steps_by_shard.values())
    console.print(
        f"{output}: {total:,} bytes ({total / 1e9:.2f} GB) for {steps:,} screens of {len(dataset.steps_by_shard):,} "
        f"shards, {shape[0]} x {shape[1]} {DTYPE} numbers each",
        highlight=False,
        soft_wrap=True,
    )


def _warn_of_crop(console: Console, dataset: ShardDataset, extractor: Extractor) -> None:
    sizes = Counter(size for episode in dataset.screen_sizes for size in episode)
    for (height, width), _ in sizes.most_common(1):
        share = extractor.preprocess.share(height, width)
        if share < _NEARLY_ALL:
            console.print(
                f"{extractor.settings.extractor} crops the centre: of screens of {height} x {width} pixels it sees "
                f"{share:.0%}. A copy of the checkpoint whose preprocessor_config.json has do_center_crop: false and "
                "size: {height, width} sees all of them",
                highlight=False,
                soft_wrap=True,
            )


_NEARLY_ALL = 0.99


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


def _write_manifest(output: Path, plan: FeaturePlan, dataset: ShardDataset) -> None:
    entries = {shard: read_entry(output, shard) for shard in dataset.steps_by_shard}
    files = [entry for entry in entries.values() if entry is not None]
    if len(files) < len(entries):
        missing = [shard for shard, entry in entries.items() if entry is None]
        raise DatasetError(
            f"the features of {len(missing)} of {len(entries)} shards are not extracted yet ({', '.join(missing[:5])}"
            f"{', …' if len(missing) > 5 else ''}); run their part of the job array again, or the same command without "
            "--shard-index"
        )
    write_checked(output / MANIFEST, _manifest(plan, files))


def _manifest(plan: FeaturePlan, files: Sequence[FeatureFile]) -> dict:
    steps = sum(file.steps for file in files)
    return {
        "features_version": VERSION,
        "vlm_agent_version": vlm_agent.__version__,
        "extractor": plan.extractor(),
        "tokens": plan.shape[0],
        "size": plan.shape[1],
        "dtype": DTYPE,
        "steps": steps,
        "shards": {"manifest_sha256": plan.shards_sha256},
        "files": [file.content() for file in files],
    }


def _summarise(console: Console, output: Path) -> None:
    from vlm_agent.models.features.store import FeatureStore

    manifest = FeatureStore(output).manifest
    about = manifest["extractor"]
    console.print(
        f"{output}: features of {manifest['steps']:,} screens in {len(manifest['files']):,} files, "
        f"{about['extractor']} {about['form']} {manifest['tokens']} x {manifest['size']}, extractor "
        f"{about['digest'][:12]}…",
        highlight=False,
        soft_wrap=True,
    )
