"""Runs stages one at a time. Each is locked, so that several commands with different parts or modes share the work.

A killed command leaves a stage that the same command resumes: each stage is one of `vlm-agent`, or writes whole files.
"""

import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from studies.ablation.runs import cpu_seconds_of_children
from studies.d_pot.served.modes import MODES, SMOLLM2, agent_of
from vlm_agent.evaluation.comparison.execution import Runner
from vlm_agent.evaluation.comparison.records import Records
from vlm_agent.evaluation.comparison.stages import OFFLINE, ONLINE, TRAIN, Stage, Stages

SECONDS = {"simulate": 0.2, "convert": 0.05, "chats": 0.1, TRAIN: 1.25, OFFLINE: 1.2, ONLINE: 3.0, SMOLLM2: 200.0}
"""Seconds of a unit of work before a stage of its kind has finished: episode, training step, episode's requests."""


@dataclass(frozen=True)
class Work:
    """`todo`: the stages of this command in their order, each with the comparison that it belongs to."""

    options: Namespace
    console: Console
    todo: Sequence[tuple[Stages, Stage]]
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def records(self) -> Records:
        return Records(self.options.output)

    def complete(self, stages: Stages, stage: Stage) -> bool:
        """Runs the stage unless it is done; False if its command fails. Waits for another process that runs it."""
        records = self.records
        if records.is_done(stage):
            return True
        number = [one.name for _, one in self.todo].index(stage.name) + 1
        about = f"[{number}/{len(self.todo)}, about {self.seconds_left() / 60:.0f} min left] "
        before = cpu_seconds_of_children()
        try:
            # A runner each, so that every stage has a server, and a log of it, of its own.
            with Runner(stages, records, self.console) as runner, records.locked(stage, self._say):
                if not records.is_done(stage):
                    status = self._write_chats(stage, about) if stage.name == "chats" else runner.run(stage, about)
                    if status:
                        self.failed[stage.name] = records.why_not_done(stage)
        finally:
            self._add_cpu_seconds(stage, cpu_seconds_of_children() - before)
        return records.is_done(stage)

    def _add_cpu_seconds(self, stage: Stage, seconds: float) -> None:
        if seconds:
            path = cpu_log(self.options.output, stage)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{seconds:.1f}\n")

    def seconds_left(self) -> float:
        rates = self._rates()
        open_stages = [stage for _, stage in self.todo if not self.records.is_done(stage)]
        return sum(rates[kind_of(stage)] * units_of(stage, self.options) for stage in open_stages)

    def _rates(self) -> dict[str, float]:
        """Seconds of a unit by kind, from the stages that have finished here."""
        ran = self.records.by_stage(stage for _, stage in self.todo)
        rates: dict[str, float] = dict(SECONDS)
        for kind in SECONDS:
            done = [stage for _, stage in self.todo if kind_of(stage) == kind and self.records.is_done(stage)]
            if done:
                seconds = sum(ran[stage.name]["seconds"] for stage in done)
                rates[kind] = seconds / sum(units_of(stage, self.options) for stage in done)
        return rates

    def _write_chats(self, stage: Stage, about: str) -> int:
        self._say(f"{about}$ python -m studies.d_pot.chats {' '.join(stage.words)}")
        self.records.add(stage, command=" ".join(stage.words))
        start = time.monotonic()
        status = subprocess.run([sys.executable, "-m", "studies.d_pot.chats", *stage.words], check=False).returncode
        self.records.add(stage, status=status, seconds=round(time.monotonic() - start, 1), peak_gb=0.0)
        return status

    def _say(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def cpu_log(output: Path, stage: Stage) -> Path:
    """A line for each start of a stage that was not killed: CPU seconds of its command and its server."""
    return output / "logs" / f"{stage.name}.cpu_seconds"


def kind_of(stage: Stage) -> str:
    if stage.name.startswith(f"{OFFLINE}-{SMOLLM2}"):
        return SMOLLM2
    return stage.kind or stage.name


def units_of(stage: Stage, options: Namespace) -> float:
    """The work of a stage, in units of `SECONDS`."""
    sizes: Mapping[str, float] = {
        "simulate": options.simulated,
        "convert": options.simulated,
        "chats": options.chats,
        TRAIN: options.steps,
        OFFLINE: options.episodes,
        ONLINE: options.tasks,
        SMOLLM2: options.smollm2_episodes,
    }
    of_mode = 1.0
    if stage.kind in (OFFLINE, ONLINE):
        of_mode = MODES[agent_of(stage).removeprefix(f"{SMOLLM2}_")].calls
    return sizes[kind_of(stage)] * of_mode
