"""The figures of a run.

RUN/progress.jsonl holds one JSON object per log step and per validation, appended by rank 0 while a run trains:

    {"step": 40, "steps": 100, "time": "2026-01-31T12:00:00+00:00", "seconds": 61.5,
     "total_seconds": 161.5, "eta_seconds": 92.2,
     "loss": 0.41, "action_loss": 0.39, "loss_tap": …, "tokens_per_second": …, "actions_per_second": …,
     "data_wait": 0.02, "memory_gib": 3.1, "learning_rate": …, "grad_norm": …, …}
    {"step": 40, …, "eval_loss": 0.52, "eval_accuracy": 0.61, "eval_accuracy_tap": …, …}

`seconds` counts from the last start, `total_seconds` over all starts, steps that were lost and repeated included;
`eta_seconds` is computed at the speed since the last start. A stopped run ends with a line of times alone.
`loop/meter.py` and `loop/validation.py` define the other figures. A resumed run drops the lines after its checkpoint
and appends the steps that it repeats, so that no step occurs twice. Its first line is a mean over the steps since the
checkpoint: if the checkpoint lies between two log steps, losses and speed of that line differ from those of an
uninterrupted run.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vlm_agent.files import atomic_write

PROGRESS = "progress.jsonl"


def is_progress(logs: Mapping[str, Any]) -> bool:
    """Whether a line is of a log step or a validation, not of times alone."""
    return not {"loss", "eval_loss"}.isdisjoint(logs)


def append_progress(path: Path, line: dict[str, Any]) -> None:
    """Appends one line by a single write, so that a reader sees at most the last line incomplete."""
    with path.open("ab", buffering=0) as file:
        file.write(_encoded(line))


def read_progress(path: Path) -> list[dict[str, Any]]:
    """The lines, oldest first; none without a file. A line that a killed process left incomplete is skipped."""
    if not path.is_file():
        return []
    lines = []
    for text in path.read_bytes().splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines


def total_seconds(path: Path) -> float:
    """Seconds of training until the last line; 0 without one."""
    return max((line.get("total_seconds", 0.0) for line in read_progress(path)), default=0.0)


def keep_steps(path: Path, last: int) -> None:
    """Removes the lines after step `last`, those of times alone, and what a killed process left incomplete."""
    if path.exists():
        kept = [_encoded(line) for line in read_progress(path) if line["step"] <= last and is_progress(line)]
        with atomic_write(path) as temporary:
            temporary.write_bytes(b"".join(kept))


def _encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"
