"""The progress of resumable jobs, read from their output folders: evaluations, comparisons, features, annotations.

No input is read but the index of shards, whose absence leaves a total unknown. A task of a job array does not hold the
folder alone, so the age of the newest part shows whether any still runs.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from vlm_agent.errors import DatasetError, UserError
from vlm_agent.files import read_lock
from vlm_agent.files.jobs import Job, time_left


@dataclass(frozen=True)
class Progress:
    """The parts of a job. `unit`: what a part is, in the plural. `total`: None where it is unknown. `groups`: name →
    (done, total), in addition. `failed`: lines about parts that failed."""

    unit: str
    done: tuple[Path, ...]
    total: int | None
    groups: tuple[tuple[str, int, int | None], ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def written(self) -> list[float]:
        """When the parts were written, oldest first."""
        return sorted(path.stat().st_mtime for path in self.done if path.exists())

    @property
    def last(self) -> datetime | None:
        written = self.written
        return datetime.fromtimestamp(written[-1], UTC) if written else None

    @property
    def eta(self) -> timedelta | None:
        """At the speed between the first and the newest part; None with fewer than two."""
        left = 0 if self.total is None else max(self.total - len(self.done), 0)
        return time_left([(when, 1) for when in self.written], left)


@dataclass(frozen=True)
class Kind:
    """A kind of job. `command`: its subcommand. `results`: files of a complete job. `shows`: a command that shows the
    result. `is_one`: whether a folder holds one."""

    noun: str
    command: str
    results: tuple[str, ...]
    shows: str
    is_one: Callable[[Path], bool]
    job: Callable[[Path], Job]
    progress: Callable[[Path], Progress]
    has_finish: bool = True

    def is_complete(self, folder: Path) -> bool:
        return all((folder / name).exists() for name in self.results)

    def state(self, folder: Path, progress: Progress) -> str:
        again = f"run the same `vlm-agent {self.command}` again to resume"
        job, lock = self.job(folder), None
        with suppress(OSError):  # of a file system without locks
            lock = read_lock(folder / job.lock)
        if lock is not None and lock[0]:
            return f"{self.noun}, running{f': {lock[1]}' if lock[1] else ''}"
        if progress.failed:
            return f"{self.noun}, not complete: some parts failed; {again}"
        is_all_done = progress.total is not None and len(progress.done) >= progress.total
        if self.is_complete(folder) and (is_all_done or progress.total is None):
            return f"{self.noun}, complete; {self.shows.format(folder)} shows it"
        if is_all_done and self.has_finish:
            return f"{self.noun}, all parts are done; run `vlm-agent {self.command} --finish --output {folder}`"
        return f"{self.noun}, not complete; unless a job array writes it now, {again}"


def kind_of(folder: Path) -> Kind | None:
    return next((kind for kind in _kinds() if kind.is_one(folder)), None)


def _kinds() -> Iterable[Kind]:
    from vlm_agent.annotation.job import settings as annotation
    from vlm_agent.evaluation.offline import plan as offline
    from vlm_agent.evaluation.online import evaluate as online

    report = "`vlm-agent view {}`"
    yield Kind(
        "a comparison",
        "compare",
        ("comparison.html",),
        report,
        lambda folder: (folder / "plans").is_dir() and (folder / "plan.json").is_file(),
        lambda folder: Job(folder, "a comparison"),
        _of_comparison,
        has_finish=False,
    )
    yield Kind(
        "an evaluation",
        "evaluate",
        (offline.METRICS, "report.html"),
        report,
        lambda folder: (folder / offline.PLAN).is_file() and not (folder / "plans").is_dir(),
        offline.job,
        _of_evaluation,
    )
    yield Kind(
        "an online evaluation",
        "evaluate --online",
        (online.ONLINE,),
        report,
        lambda folder: (folder / online.PLAN).is_file(),
        lambda folder: Job(folder, "an online evaluation", online.PLAN),
        _of_online,
        has_finish=False,
    )
    from vlm_agent.models.features import job as features  # imports PyTorch

    yield Kind(
        "features",
        "features",
        ("manifest.json",),
        "its manifest.json",
        lambda folder: (folder / features.WORK / "plan.json").is_file(),
        features.job_of,
        _of_features,
    )
    yield Kind(
        "an annotation",
        "annotate",
        ("manifest.json",),
        "`vlm-agent inspect {}`",
        lambda folder: (folder / annotation.WORK / "plan.json").is_file(),
        annotation.job,
        _of_annotation,
    )


def _of_evaluation(folder: Path) -> Progress:
    from vlm_agent.evaluation.offline.parts import EPISODES_PER_PART, Parts, read_counts
    from vlm_agent.evaluation.offline.plan import read_plan
    from vlm_agent.evaluation.offline.run import episodes_of

    plan = read_plan(folder)
    chosen = episodes_of(plan.benchmark)[1]
    parts = Parts(folder, chosen)
    done: list[Path] = []
    groups, failed = [], []
    for run in plan.runs:
        written = parts.written(run)
        done += written
        groups.append((run, len(written), len(parts.numbers)))
        counts = [path.with_suffix(".json") for path in written if path != parts.merged_path(run)]
        if lines := [line for path in counts for line in read_counts(path, "evaluate again").failed]:
            failed.append(f"{run}: {len(lines):,} step(s) without an answer; first: {lines[0]}")
    unit = f"parts of {EPISODES_PER_PART} episodes"
    return Progress(unit, tuple(done), len(parts.numbers) * len(plan.runs), tuple(groups), tuple(failed))


def _of_online(folder: Path) -> Progress:
    from vlm_agent.evaluation.online.evaluate import read_tasks
    from vlm_agent.evaluation.online.runs import RESULT

    runs, tasks = read_tasks(folder)
    by_run = {run: tuple(sorted((folder / run).glob(f"*/{RESULT}"))) for run in runs}
    groups = tuple((run, len(found), tasks) for run, found in by_run.items())
    total = None if tasks is None else tasks * len(runs)
    return Progress("tasks", tuple(path for found in by_run.values() for path in found), total, groups)


def _of_comparison(folder: Path) -> Progress:
    from vlm_agent.evaluation.comparison.records import read_progress

    done, failed, total = read_progress(folder)
    return Progress("stages", tuple(done), total, failed=tuple(failed))


def _of_features(folder: Path) -> Progress:
    from vlm_agent.datasets.shards.dataset import ShardDataset
    from vlm_agent.models.features.job import WORK, read_plan

    done = tuple(path for path in (folder / WORK).rglob("*.json") if path.name != "plan.json")
    try:
        total = len(ShardDataset(Path(read_plan(folder)["where"])).steps_by_shard)
    except (DatasetError, OSError):
        total = None
    return Progress("shards", done, total)


def _of_annotation(folder: Path) -> Progress:
    from vlm_agent.annotation.job.settings import AnnotationPlan, job

    shards = AnnotationPlan.read(folder).shards
    paths = [job(folder).entry_path(shard.shard) for shard in shards]
    return Progress("shards", tuple(path for path in paths if path.is_file()), len(shards))


def refuse_for_shards(folder: Path) -> None:
    """Raises UserError for the output of another command than `convert`, with the command that shows it."""
    if (kind := kind_of(folder)) is not None and kind.command != "annotate":
        advice = f"{kind.shows.format(folder)} shows it" if kind.is_complete(folder) else "it is not complete"
        raise UserError(
            f"{folder} holds {kind.noun}, not shards; `vlm-agent status {folder}` shows its progress; {advice}"
        )
    if any((folder / name).exists() for name in ("recipe.yaml", "run.json", "checkpoints")):
        raise UserError(
            f"{folder} is a run, not shards; `vlm-agent status {folder}` shows its progress, and `vlm-agent evaluate "
            f"--checkpoint {folder}` scores it"
        )
