"""Where a run writes its figures: the console, RUN/progress.jsonl and trackers. Rank 0 writes."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from vlm_agent.files.console import clock_time
from vlm_agent.training.loop import ranks
from vlm_agent.training.run_folder.progress import PROGRESS, append_progress, keep_steps, total_seconds
from vlm_agent.training.tracking import Log


class Journal:
    """Measures time since the last start of training, which excludes steps before a resume. `first`: steps done then;
    the lines of RUN/progress.jsonl after it are dropped."""

    def __init__(self, run: Path, first: int, steps: int, console: Console, trackers: Sequence[Log]) -> None:
        self.path, self.first, self.steps, self.console, self.trackers = run / PROGRESS, first, steps, console, trackers
        self._writes = ranks.number() == 0
        self._before = total_seconds(self.path)
        if self._writes:
            keep_steps(self.path, first)
        self._started = time.monotonic()

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Writes the figures of a log step, or of a validation after it."""
        if self._writes:
            for log in (self._to_console, self._to_progress, *self.trackers):
                log(step, figures)

    def close(self, step: int) -> None:
        """Records the time of a run that stopped after `step`, since its last log step."""
        if self._writes and step < self.steps:
            self._to_progress(step, {})

    def seconds(self) -> float:
        return time.monotonic() - self._started

    def total_seconds(self) -> float:
        """Seconds of training over all starts, as far as lines of killed ones record them."""
        return self._before + self.seconds()

    def eta(self, step: int) -> float:
        """Seconds to the last step, at the speed since the start."""
        return self.seconds() / max(step - self.first, 1) * (self.steps - step)

    def _to_console(self, step: int, figures: Mapping[str, float]) -> None:
        if "eval_loss" in figures:
            line = f"  validation: loss {figures['eval_loss']:.3f}, {figures['eval_accuracy']:.1%} of actions exact"
        else:
            element = f" elements {figures['element_loss']:.3f}" if "element_loss" in figures else ""
            mfu = f"  MFU {figures['mfu']:.1%}" if "mfu" in figures else ""
            line = (
                f"step {step}/{self.steps}  loss {figures['loss']:.3f}{element}  "
                f"{figures['tokens_per_second']:,.0f} tokens/s  {figures['actions_per_second']:.1f} actions/s{mfu}  "
                f"loader wait {figures['data_wait']:.0%}  {figures['memory_gib']:.1f} GiB  "
                f"ETA {clock_time(self.eta(step))}"
            )
        self.console.print(line, highlight=False, soft_wrap=True)

    def _to_progress(self, step: int, figures: Mapping[str, float]) -> None:
        times: dict[str, Any] = {
            "step": step,
            "steps": self.steps,
            "time": datetime.now(UTC).isoformat(),
            "seconds": round(self.seconds(), 3),
            "total_seconds": round(self.total_seconds(), 3),
            "eta_seconds": round(self.eta(step), 3),
        }
        append_progress(self.path, {**times, **figures})
