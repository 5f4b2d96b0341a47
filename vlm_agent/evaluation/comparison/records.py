"""What ran: a record and a lock of each stage, so that stages can run at the same time, also on several machines.

OUT/stages/names.json    the result of each stage, relative to OUT
OUT/stages/STAGE.jsonl   a line for each start (command) and each end (status, seconds, peak memory)
OUT/stages/STAGE.lock    held while the stage runs
OUT/logs/STAGE.log       its output
"""

import json
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from vlm_agent.evaluation.comparison.settings import ComparisonError
from vlm_agent.evaluation.comparison.stages import Stage
from vlm_agent.files import file_lock, kind_problem, read_json, write_json

_NAMES = "names.json"
"""In OUT/stages: the outputs of all stages, by their name."""


def read_progress(output: Path) -> tuple[list[Path], list[str], int | None]:
    """The records of stages that are done in the folder of a comparison, a line for each that failed, and the
    number of all stages; None if no command has recorded it yet."""
    folder = output / "stages"
    names = read_json(folder / _NAMES, "remove it") if (folder / _NAMES).is_file() else None
    done, failed = [], []
    for path in sorted(folder.glob("*.jsonl")):
        if names is not None and path.stem not in names:
            continue  # of another selection of agents or seeds
        lines = [content for line in path.read_text("utf-8", "replace").splitlines() if (content := _content(line))]
        if _has_succeeded(lines) and (names is None or (output / names[path.stem]).exists()):
            done.append(path)
        elif (ends := [line["status"] for line in lines if "status" in line]) and ends[-1]:
            failed.append(f"{path.stem} with status {ends[-1]}; see {output / 'logs' / path.stem}.log")
    return done, failed, None if names is None else len(names)


def _has_succeeded(lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the last start of a stage has ended well: an earlier success is no longer that of its result."""
    return bool(lines) and lines[-1].get("status") == 0


def _content(line: str) -> dict[str, Any] | None:
    try:
        content = json.loads(line)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


@dataclass(frozen=True)
class Records:
    """The records of a comparison in `output`. Files are read at each call, because other processes write them."""

    output: Path

    def note(self, stages: Iterable[Stage]) -> None:
        """Records which stages there are, for `vlm-agent status`."""
        path = self.output / "stages" / _NAMES
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {stage.name: os.path.relpath(stage.result, self.output) for stage in stages})

    def log(self, stage: Stage) -> Path:
        return self.output / "logs" / f"{stage.name}.log"

    def locked(self, stage: Stage, say: Callable[[str], None]) -> AbstractContextManager[object]:
        """Holds the stage. Where another process holds it, calls `say` and waits: a file server may keep the lock of a
        dead node for minutes, in which the stage may be started on another node."""
        message = f"waiting for another process that runs the stage {stage.name} of {self.output}"
        owner = f"process {os.getpid()} on {socket.gethostname()}"
        return file_lock(self._path(stage).with_suffix(".lock"), message, owner=owner, wait=say)

    def add(self, stage: Stage, **content: Any) -> None:
        """Appends a line. The caller must hold the stage."""
        path = self._path(stage)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            is_cut = file.tell() > 0 and _last_byte(file) != b"\n"
            file.write((b"\n" if is_cut else b"") + json.dumps(content).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def is_done(self, stage: Stage) -> bool:
        """Whether it has succeeded and its result is still there."""
        return _has_succeeded(self._lines(stage)) and stage.result.exists()

    def was_started(self, stage: Stage) -> bool:
        return bool(self._lines(stage))

    def why_not_done(self, stage: Stage) -> str:
        """A reason, for the terminal. `stage` is not done."""
        lines = self._lines(stage)
        if not lines:
            return f"{stage.name} has not run"
        if "status" not in lines[-1]:
            return f"{stage.name} was interrupted, or is running; see {self.log(stage)}"
        if lines[-1]["status"] == 0:
            return f"{stage.name} has lost its result, {stage.result}"
        return f"{stage.name} failed with status {lines[-1]['status']}; see {self.log(stage)}"

    def by_stage(self, stages: Iterable[Stage]) -> dict[str, dict[str, Any]]:
        """For each stage that was started: its command, the sum of seconds and the maximum of memory over all starts,
        and whether a start has no end: a kill, whose seconds are unknown."""
        return {stage.name: _sum(lines) for stage in stages if (lines := self._lines(stage))}

    def _path(self, stage: Stage) -> Path:
        return self.output / "stages" / f"{stage.name}.jsonl"

    def _lines(self, stage: Stage) -> list[dict[str, Any]]:
        path = self._path(stage)
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        read = (_read(path, number, line) for number, line in enumerate(lines, 1))
        return [content for content in read if content is not None]


def _sum(lines: list[dict[str, Any]]) -> dict[str, Any]:
    starts = [line for line in lines if "command" in line]
    ends = [line for line in lines if "status" in line]
    return {
        "seconds": sum(line["seconds"] for line in ends),
        "peak_gb": max((line["peak_gb"] for line in ends), default=0.0),
        "command": starts[-1]["command"] if starts else "",
        "killed": len(starts) > len(ends),
    }


def _last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read(1)


@dataclass
class _Start:
    command: str


@dataclass
class _End:
    """`seconds` and `peak_gb`: of the process."""

    status: int
    seconds: float
    peak_gb: float


def _read(path: Path, number: int, line: str) -> dict[str, Any] | None:
    """None for a line that a kill cut. Raises ComparisonError for one of another shape."""
    try:
        content = json.loads(line)
    except ValueError:
        return None
    kind = _End if isinstance(content, dict) and "status" in content else _Start
    if (reason := kind_problem(line.encode(), kind)) is not None:
        raise ComparisonError(
            f"{path}, line {number}, is no line of this version ({reason}); remove this line; the stage then runs again"
        )
    return cast(dict[str, Any], content)
