"""Writes a trace line by line (the format: `traces.py`)."""

import json
from pathlib import Path

import numpy as np

from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.images import encode_png
from vlm_agent.datasets.trace_lines import TraceStep, step_line
from vlm_agent.datasets.traces import STEPS, Heading, write_heading


class TraceWriter:
    """A context manager; every line is on its way to the disk when its method returns.

    Where the block ends without `end`, the trace is ended for it: by what was raised. Raises DatasetError where
    `folder` exists and is not an empty folder.
    """

    def __init__(self, folder: Path, heading: Heading):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise DatasetError(f"{folder} exists and is not an empty folder; name another for the trace")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.heading = folder, heading
        write_heading(folder, heading)
        self._file = (folder / STEPS).open("w", encoding="utf-8")
        self._has_ended = False

    def __enter__(self) -> "TraceWriter":
        return self

    def __exit__(self, kind, error, trace) -> None:
        try:
            if not self._has_ended:
                self.end(*_end_by(error))
        finally:
            self._file.close()

    def screen(self, number: int, pixels: np.ndarray) -> Path:
        """Writes what step `number` sees, uint8 (height, width, 3) RGB; the step's line is to name the file."""
        path = self.folder / f"screen_{number:03d}.png"
        path.write_bytes(encode_png(pixels))
        return path

    def step(self, step: TraceStep) -> None:
        """Before the phone is touched."""
        self._write(step_line(step))

    def outcome(self, number: int, outcome: str, seconds: float = 0.0) -> None:
        """What came of step `number`: one of `trace_lines.OUTCOMES`."""
        self._write({"of": number, "outcome": outcome, "seconds": seconds})

    def end(self, reason: str, message: str = "", **more) -> None:
        self._has_ended = True
        self._write({"end": reason, "message": message, **more})

    def _write(self, content: dict) -> None:
        self._file.write(json.dumps(content, ensure_ascii=False) + "\n")
        self._file.flush()


def _end_by(error: BaseException | None) -> tuple[str, str]:
    if isinstance(error, KeyboardInterrupt):
        return "stopped", "stopped by Ctrl-C"
    return "error", "the run left without saying why" if error is None else f"{type(error).__name__}: {error}"
