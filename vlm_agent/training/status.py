"""How a training run is doing, from its folder alone: nobody has to be asked, not Slurm and not the run itself.

RUN/run.json                                finished
RUN/checkpoints/checkpoint-N/whole.json     N steps are safe; trainer_state.json beside it tells of how many, and losses
RUN/slurm.tsv                               every start and end of its jobs (`slurm/common.sh`)
RUN/logs/JOB/{rank,node}-N.log, job.log     what they said (`slurm/train.sbatch`)
RUN/stopped                                 told to stop, and has saved
"""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from vlm_agent.training.checkpoint_record import RECORD

LEDGER, LOGS = "slurm.tsv", "logs"
_FINISHED, _STOPPED, _CHECKPOINTS, _RECIPE = "run.json", "stopped", "checkpoints", "recipe.yaml"
_TRAINER_STATE = "trainer_state.json"
_LOG_TAIL = 1 << 16
_START = "\n=== "
_PROGRESS = re.compile(r"^step (\d+)/(\d+)  loss ([\d.]+)", re.MULTILINE)
_ERRORS = (
    ("rank-*.log", re.compile(r"^(?:[\w.]*(?:Error|Exception|Interrupt)\b.*|vlm-agent train: .*)$", re.MULTILINE)),
    ("node-*.log", re.compile(r"^\s*(?:exitcode\s*:.*|\w[\w.]*Error\b.*|.*PyTorch sees.*)$", re.MULTILINE)),
    ("job.log", re.compile(r"^(?:srun|slurmstepd)\S*: error: .*$", re.MULTILINE)),
)
"""Where an error is looked for, and what it looks like: what a rank says is nearer to the cause than what is said of
it."""


class StatusError(ValueError):
    """A folder of which nothing can be told."""


@dataclass(frozen=True)
class Event:
    """A line of the ledger; `name` is start, done, again, stopped or failed, `done` the steps in a checkpoint then."""

    time: datetime
    name: str
    job: str
    done: int
    note: str


@dataclass(frozen=True)
class Checkpoint:
    step: int
    time: datetime
    state: dict
    """Trainer's."""


@dataclass(frozen=True)
class Status:
    """`state` in words; `step` of `steps` and `loss` where something tells them; `left` at the speed since the last
    start; `error` with the file that it is from; `alive` is when the run last wrote anything."""

    state: str
    step: int | None
    steps: int | None
    loss: float | None
    left: timedelta | None
    checkpoint: Checkpoint | None
    starts: tuple[Event, ...]
    alive: datetime | None
    error: str | None


def read_status(run: Path) -> Status:
    """Raises StatusError where `run` is no run folder."""
    if not any((run / name).exists() for name in (_FINISHED, _RECIPE, LEDGER, _CHECKPOINTS)):
        raise StatusError(f"{run} is no run folder: it has no {_RECIPE}, {LEDGER} or {_CHECKPOINTS}")
    finished = (run / _FINISHED).exists()
    events, checkpoints, logs = _events(run), _whole_checkpoints(run), _newest_logs(run)
    step, steps, loss = _progress(logs, checkpoints)
    if finished:
        step = json.loads((run / _FINISHED).read_text(encoding="utf-8"))["figures"]["steps"]
    return Status(
        state=_state(run, finished, events),
        step=step,
        steps=step if finished else steps,
        loss=loss,
        left=None if finished or steps is None else _left(events, checkpoints, steps),
        checkpoint=checkpoints[-1] if checkpoints else None,
        starts=tuple(event for event in events if event.name == "start"),
        alive=_last_written(run),
        error=None if finished or logs is None else _error(run, logs),
    )


def _state(run: Path, finished: bool, events: list[Event]) -> str:
    if finished:
        return "finished"
    last = events[-1] if events else None
    if last is not None and last.name == "failed":
        return f"failed in job {last.job}: {last.note}"
    if last is not None and last.name == "stopped":
        return f"stopped in job {last.job}: {last.note}"
    if last is not None and last.name == "again":
        return f"stopped and saved; job {last.job} waits for its next turn"
    if last is not None and last.name == "start":
        return f"started by job {last.job} on {last.note}"
    return "stopped and saved; the same command goes on" if (run / _STOPPED).exists() else "begun"


def _events(run: Path) -> list[Event]:
    path = run / LEDGER
    if not path.is_file():
        return []
    fields = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    # A node that died while it wrote may have left a part of a line.
    whole = [line for line in fields if len(line) == 6]
    return [Event(datetime.fromisoformat(time), name, job, int(done), note) for time, name, job, _, done, note in whole]


def _whole_checkpoints(run: Path) -> list[Checkpoint]:
    """Oldest first."""
    found = []
    for record in (run / _CHECKPOINTS).glob(f"checkpoint-*/{RECORD}"):
        number = record.parent.name.removeprefix("checkpoint-")
        # A running training removes old checkpoints while somebody looks.
        with suppress(FileNotFoundError):
            if number.isdecimal():
                state = json.loads((record.parent / _TRAINER_STATE).read_text(encoding="utf-8"))
                found.append(Checkpoint(int(number), _written(record), state))
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def _newest_logs(run: Path) -> Path | None:
    return max((run / LOGS).glob("*/"), key=lambda folder: folder.stat().st_mtime, default=None)


def _progress(logs: Path | None, checkpoints: list[Checkpoint]) -> tuple[int | None, int | None, float | None]:
    """(step, steps, loss) from the log of rank 0, which is further than the newest checkpoint, or else from that."""
    printed = _PROGRESS.findall(_of_last_start(logs / "rank-0.log")) if logs is not None else []
    if printed:
        step, steps, loss = printed[-1]
        return int(step), int(steps), float(loss)
    if not checkpoints:
        return None, None, None
    newest = checkpoints[-1]
    losses = [line["loss"] for line in newest.state["log_history"] if "loss" in line]
    return newest.step, newest.state["max_steps"], losses[-1] if losses else None


def _left(events: list[Event], checkpoints: list[Checkpoint], steps: int) -> timedelta | None:
    """What is missing at the speed between the last start, or else the oldest checkpoint, and the newest one.

    None where there are not two such moments.
    """
    starts = [event for event in events if event.name == "start"]
    moments = [(checkpoint.time, checkpoint.step) for checkpoint in checkpoints]
    if starts:
        moments = [(starts[-1].time, starts[-1].done), *(one for one in moments if one[0] > starts[-1].time)]
    if len(moments) < 2 or moments[-1][1] <= moments[0][1]:
        return None
    (first_time, first), (last_time, last) = moments[0], moments[-1]
    return (last_time - first_time) / (last - first) * (steps - last)


def _error(run: Path, logs: Path) -> str | None:
    """The last error of the process that fell silent first: those of the others follow from it."""
    for pattern, error in _ERRORS:
        for path in sorted(logs.glob(pattern), key=lambda log: log.stat().st_mtime):
            if found := error.findall(_of_last_start(path)):
                return f"{found[-1].strip()} ({path.relative_to(run)})"
    return None


def _of_last_start(path: Path) -> str:
    """The end of a log, but nothing that was said before the last start."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_TAIL))
        return file.read().decode("utf-8", errors="replace").rpartition(_START)[2]


def _last_written(run: Path) -> datetime | None:
    times = []
    for folder in (LOGS, _CHECKPOINTS, "tensorboard"):
        for path in (run / folder).rglob("*"):
            with suppress(FileNotFoundError):
                times.append(_written(path))
    return max(times, default=None)


def _written(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
