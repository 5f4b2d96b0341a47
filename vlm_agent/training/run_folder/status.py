"""The state of a training run, read from its folder: no process of the run and no Slurm command is asked.

RUN/run.json                                the run is finished; its number of steps
RUN/progress.jsonl                          step, losses, speed, ETA (`training/journal.py`)
RUN/checkpoints/checkpoint-N/whole.json     a checkpoint after N steps is complete
RUN/lock                                    held while a process trains here (`layout.py`)
RUN/merge.json                              the folder is the result of `vlm-agent merge`
RUN/slurm.tsv                               every start and end of its Slurm jobs (`slurm/common.sh`)
RUN/stopped                                 a signal stopped the run, and everything is saved

Figures come from these files alone. The logs below RUN/logs (`slurm/train.sbatch`) are searched only for an error
message to quote, because a process that is killed from outside writes nothing else.
"""

import json
import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from vlm_agent.errors import UserError
from vlm_agent.files import WITHOUT_LOCKS, check_kind, read_checked, read_lock
from vlm_agent.models.run_layout import CHECKPOINT_RECORD, CHECKPOINTS, FINISHED, LOCK, MERGED, RECIPE_FILE
from vlm_agent.training.journal import PROGRESS, TENSORBOARD, read_progress

LEDGER, LOGS = "slurm.tsv", "logs"
_STOPPED = "stopped"
_REMEDY = "restore it from a copy of the run"
_LOG_TAIL = 1 << 16
_START = "\n=== "
_ERRORS = (
    ("rank-*.log", re.compile(r"^(?:[\w.]*(?:Error|Exception|Interrupt)\b.*|vlm-agent train: .*)$", re.MULTILINE)),
    ("node-*.log", re.compile(r"^\s*(?:exitcode\s*:.*|\w[\w.]*Error\b.*|.*PyTorch sees.*)$", re.MULTILINE)),
    ("job.log", re.compile(r"^(?:srun|slurmstepd)\S*: error: .*$", re.MULTILINE)),
)
"""Log files and patterns of an error in them, nearest to the cause first: the rank's own, torchrun's, Slurm's."""


class StatusError(UserError):
    """A folder that is not a run folder."""


@dataclass(frozen=True)
class Event:
    """A line of the ledger. `name`: start, done, again, stopped or failed; `done`: steps in a checkpoint at `time`."""

    time: datetime
    name: str
    job: str
    done: int
    note: str


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint after `step` steps."""

    step: int
    time: datetime


@dataclass(frozen=True)
class Status:
    """Fields are None where no file holds them.

    `state`: in words. `eta`: time from `step` to `steps`, at the speed since the last start. `figures`, `validation`:
    the last line of each kind in progress.jsonl, empty without one. `last_write`: of any file of the run. `error`: the
    last error message in the logs, and its file.
    """

    state: str
    step: int | None
    steps: int | None
    loss: float | None
    eta: timedelta | None
    figures: dict[str, Any]
    validation: dict[str, Any]
    checkpoint: Checkpoint | None
    starts: tuple[Event, ...]
    last_write: datetime | None
    error: str | None


@dataclass
class _Line:
    """What a line of progress.jsonl must hold."""

    step: int
    steps: int
    time: AwareDatetime
    eta_seconds: Annotated[float, Field(ge=0, le=timedelta.max.total_seconds())]


@dataclass
class _LogStep(_Line):
    loss: float
    tokens_per_second: float
    actions_per_second: float
    data_wait: float
    memory_gib: float
    # Of a run of reinforcement.
    round: float = 0
    success: float = 0
    false_complete: float = 0
    mixed_groups: float = 0


@dataclass
class _Validation(_Line):
    eval_loss: float
    eval_accuracy: float


@dataclass
class _Figures:
    steps: int
    last_losses: dict[str, float] = field(default_factory=dict)


@dataclass
class _Finished:
    """What run.json must hold."""

    figures: _Figures


@dataclass
class _Merged:
    """What merge.json must hold."""

    run: str


def read_status(run: Path) -> Status:
    """Raises StatusError where `run` is not a run folder, DatasetError naming a damaged file of it."""
    if not any((run / name).exists() for name in (FINISHED, RECIPE_FILE, LEDGER, CHECKPOINTS)):
        raise StatusError(
            f"{run} is no run folder: it has no {RECIPE_FILE}, {LEDGER} or {CHECKPOINTS}; nor does it hold the plan of "
            "another job that can be resumed"
        )
    finished = (run / FINISHED).exists()
    events, checkpoints = _events(run), _whole_checkpoints(run)
    logs = max((run / LOGS).glob("*/"), key=lambda folder: folder.stat().st_mtime, default=None)
    figures, validation = _last_with("loss", _LogStep, run), _last_with("eval_loss", _Validation, run)
    if finished:
        record = read_checked(run / FINISHED, _REMEDY, _Finished)["figures"]
        step = steps = record["steps"]
        loss, eta = figures.get("loss", record.get("last_losses", {}).get("loss")), None
    elif figures:
        step, steps, loss, eta = figures["step"], figures["steps"], figures["loss"], _eta(figures, events)
    else:
        step, steps, loss, eta = (checkpoints[-1].step if checkpoints else None), None, None, None
    return Status(
        state=_state(run, finished, events),
        step=step,
        steps=steps,
        loss=loss,
        eta=eta,
        figures=figures,
        validation=validation,
        checkpoint=checkpoints[-1] if checkpoints else None,
        starts=tuple(event for event in events if event.name == "start"),
        last_write=_last_written(run),
        error=None if finished or logs is None else _error(run, logs),
    )


def _state(run: Path, finished: bool, events: list[Event]) -> str:
    if finished:
        return "finished"
    if (run / MERGED).is_file():
        return f"merged from {read_checked(run / MERGED, _REMEDY, _Merged)['run']}"
    training = _training_state(run)
    last = events[-1] if events else None
    if last is not None and last.name == "failed" and _is_trained_since(run, last.time):
        last = None
    if training is not None and training.startswith("running"):
        return training if last is None else f"{training}; job {last.job} on {last.note}"
    if last is not None and last.name in ("failed", "stopped"):
        return f"{last.name} in job {last.job}: {last.note}"
    if last is not None and last.name == "again":
        return f"stopped and saved; job {last.job} waits for its next turn"
    if last is not None and last.name == "start":
        return f"started by job {last.job} on {last.note}"
    if (run / _STOPPED).exists():
        return "stopped and saved; run the same command again to resume"
    return "not running" if training is None else training


def _is_trained_since(run: Path, time: datetime) -> bool:
    """Whether a process outside Slurm has trained into the folder after a job failed: it took or released the lock
    later."""
    lock = run / LOCK
    return lock.exists() and lock.stat().st_mtime > time.timestamp() + 60  # clocks differ


def _training_state(run: Path) -> str | None:
    """In words, whether a process trains into the folder, was killed, or ended by itself; None if none ever held it.

    A machine whose file system keeps locks to itself does not see those of others, and cannot tell the first two apart.
    """
    try:
        lock = read_lock(run / LOCK)
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
        return f"started; the file system has no locks ({error.strerror}), so it is unknown whether it is running"
    if lock is None:
        return None
    is_held, owner = lock
    if is_held:
        return f"running: {owner}"
    if not owner:
        return "interrupted; run the same command again to resume"
    elsewhere = (
        "" if f" on {socket.gethostname()}," in owner else " (or runs on its machine, and the lock is not seen here)"
    )
    return f"killed: {owner}{elsewhere}; run the same command again to resume"


def _events(run: Path) -> list[Event]:
    path = run / LEDGER
    if not path.is_file():
        return []
    return [event for line in path.read_text("utf-8", errors="replace").splitlines() if (event := _event(line))]


def _event(line: str) -> Event | None:
    """None for a malformed line: a node that died while it wrote leaves an incomplete one, to which others append."""
    fields = line.split("\t")
    if len(fields) != 6:
        return None
    with suppress(ValueError):
        time, done = datetime.fromisoformat(fields[0]), int(fields[4])
        return None if time.tzinfo is None else Event(time, fields[1], fields[2], done, fields[5])
    return None


def _whole_checkpoints(run: Path) -> list[Checkpoint]:
    """Oldest first."""
    found = []
    for record in (run / CHECKPOINTS).glob(f"checkpoint-*/{CHECKPOINT_RECORD}"):
        number = record.parent.name.removeprefix("checkpoint-")
        # A running training removes old checkpoints meanwhile.
        with suppress(FileNotFoundError):
            if number.isdecimal():
                found.append(Checkpoint(int(number), _written(record)))
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def _last_with(key: str, kind: type[_Line], run: Path) -> dict[str, Any]:
    """The last line of progress.jsonl with `key`, empty without one."""
    path = run / PROGRESS
    line: dict[str, Any] = next((line for line in reversed(read_progress(path)) if key in line), {})
    if line:
        check_kind(json.dumps(line).encode(), kind, path, "remove the line, or restore the file from a copy of the run")
    return line


def _eta(figures: dict[str, Any], events: list[Event]) -> timedelta | None:
    """None where the run was started again and has not logged a step yet."""
    starts = [event.time for event in events if event.name == "start"]
    if starts and datetime.fromisoformat(figures["time"]) < starts[-1]:
        return None
    return timedelta(seconds=figures["eta_seconds"])


def _error(run: Path, logs: Path) -> str | None:
    """The last error in the log that ended first, because the errors of the other ranks follow from it."""
    for pattern, error in _ERRORS:
        for path in sorted(logs.glob(pattern), key=lambda log: log.stat().st_mtime):
            if found := error.findall(_of_last_start(path)):
                return f"{found[-1].strip()} ({path.relative_to(run)})"
    return None


def _of_last_start(path: Path) -> str:
    """The end of a log, from the last start on."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_TAIL))
        return file.read().decode("utf-8", errors="replace").rpartition(_START)[2]


def _last_written(run: Path) -> datetime | None:
    times = [_written(run / PROGRESS)] if (run / PROGRESS).exists() else []
    for top in (LOGS, CHECKPOINTS, TENSORBOARD):
        # A running training removes old checkpoints, also while one is listed: `rglob` would raise.
        for folder, folders, files in os.walk(run / top):
            for name in (*folders, *files):
                with suppress(FileNotFoundError):
                    times.append(_written(Path(folder, name)))
    return max(times, default=None)


def _written(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
