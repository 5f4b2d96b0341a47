"""Writes a trace line by line; `traces.py` describes the format."""

import json
from pathlib import Path

import numpy as np

from vlm_agent.datasets.shards.images import encode_png
from vlm_agent.datasets.sources.traces import STEPS, Heading, TraceStep, device_line, step_line, write_heading
from vlm_agent.episodes import Action
from vlm_agent.errors import DatasetError


class TraceWriter:
    """Writes a trace to `folder`; a context manager. Each line is flushed before its method returns.

    If the block does not call `end`, its exception is written as the end of the trace. Raises DatasetError if `folder`
    exists and is not an empty folder.
    """

    def __init__(self, folder: Path, heading: Heading) -> None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise DatasetError(f"{folder} exists and is not an empty folder; choose another folder for the trace")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.heading = folder, heading
        write_heading(folder, heading)
        self._file = (folder / STEPS).open("w", encoding="utf-8")
        self._has_ended = False

    def __enter__(self) -> "TraceWriter":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if not self._has_ended:
                self.end(*_end_by(error))
        finally:
            self._file.close()

    def screen(self, number: int, pixels: np.ndarray) -> Path:
        """Writes the screen of step `number`, uint8 (height, width, 3) RGB. Its line must name the file."""
        path = self.folder / f"screen_{number:03d}.png"
        path.write_bytes(encode_png(pixels))
        return path

    def step(self, step: TraceStep) -> None:
        """Writes the line of a step. Call this before the action is performed."""
        self._write(step_line(step))

    def outcome(self, number: int, outcome: str, seconds: float = 0.0) -> None:
        """Writes the outcome of step `number`, one of `traces.OUTCOMES`, and its duration in seconds."""
        self._write({"of": number, "outcome": outcome, "seconds": seconds})

    def device_action(self, action: Action) -> None:
        """Writes the line of an action that the device performs by itself. Call this before it is performed."""
        self._write(device_line(action))

    def end(self, reason: str, message: str = "", **more) -> None:
        self._has_ended = True
        self._write({"end": reason, "message": message, **more})

    def _write(self, content: dict) -> None:
        self._file.write(json.dumps(content, ensure_ascii=False) + "\n")
        self._file.flush()


def _end_by(error: BaseException | None) -> tuple[str, str]:
    if isinstance(error, KeyboardInterrupt):
        return "stopped", "stopped by Ctrl-C"
    return "error", "the run ended without a reason" if error is None else f"{type(error).__name__}: {error}"
