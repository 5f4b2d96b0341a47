"""Runs the stages of a comparison; killed at any time, the same command resumes.

OUT/plan.json           the comparison file and its sizes; another one is refused
OUT/stages.jsonl        what ran: command, status, seconds, peak memory
OUT/logs/               the output of each stage
OUT/comparison.json     the table and everything on the page
OUT/comparison.html
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import yaml
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from vlm_agent.comparison.page import print_table, write_page
from vlm_agent.comparison.results import results_of
from vlm_agent.comparison.settings import SERVED, Comparison, ComparisonError
from vlm_agent.comparison.stages import Layout, Stage, Stages
from vlm_agent.files import atomic_write, write_json
from vlm_agent.jobs import Job
from vlm_agent.peak_memory import PeakMemory
from vlm_agent.recipe.shipped import find_shipped
from vlm_agent.recipe.yaml_file import read_mapping
from vlm_agent.serving import free_port, served_model

INTERRUPTED = 130
"""The status of a command after Ctrl-C."""

JSON, PAGE, RAN = "comparison.json", "comparison.html", "stages.jsonl"


@dataclass(frozen=True)
class Endpoint:
    """A server that the user runs, in place of the model that a comparison makes."""

    url: str
    model: str


def compare(
    comparison: Comparison,
    output: Path,
    console: Console,
    shards: Path | None = None,
    quick: bool = False,
    endpoint: Endpoint | None = None,
) -> dict[str, Any]:
    """Runs what is not finished in `output`, and returns the content of `comparison.json`.

    `shards`: existing ones in place of simulated demonstrations. Raises ComparisonError at the end if a stage of an
    agent failed; all other agents are compared. DatasetError if `output` holds another comparison.
    """
    sizes = comparison.quick if quick else comparison.sizes
    layout = Layout(output, shards)
    job = Job(output, "a comparison")
    job.write_or_verify_plan(_plan(comparison, quick, shards, endpoint))
    with job.locked():
        stages = Stages(comparison, sizes, layout, None if endpoint is None else endpoint.url)
        ran = Ran(output / RAN)
        failed = _run_all(stages, ran, console, endpoint)
        content = results_of(stages, ran.by_stage(), failed)
        write_json(output / JSON, content)
        write_page(output / PAGE, content, layout.shards)
    print_table(content, console)
    console.print(f"Wrote {output / PAGE} and {output / JSON}", highlight=False, markup=False, soft_wrap=True)
    if failed:
        lines = [f"  {key}, seed {seed}: {why}" for (key, seed), why in failed.items()]
        raise ComparisonError("some agents have no result; run the same command again to retry:\n" + "\n".join(lines))
    return content


def _plan(comparison: Comparison, quick: bool, shards: Path | None, endpoint: Endpoint | None) -> dict[str, Any]:
    return {
        "comparison": comparison.model_dump(mode="json"),
        "quick": quick,
        "shards": None if shards is None else str(shards),
        "served_model": None if endpoint is None else endpoint.model,
    }


@dataclass
class _Start:
    stage: str
    command: str


@dataclass
class _End:
    """`seconds` and `peak_gb`: of the process."""

    stage: str
    status: int
    seconds: float
    peak_gb: float


@dataclass
class Ran:
    """The record of stages, one line for each start and end."""

    path: Path
    lines: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.path.is_file():
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
            read = (self._read(number, line) for number, line in enumerate(lines, 1))
            self.lines = [content for content in read if content is not None]

    def add(self, **content: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            is_cut = file.tell() > 0 and self._last_byte(file) != b"\n"
            file.write((b"\n" if is_cut else b"") + json.dumps(content).encode() + b"\n")
        self.lines.append(content)

    def is_done(self, stage: Stage) -> bool:
        has_ended = any(line["stage"] == stage.name and line.get("status") == 0 for line in self.lines)
        return has_ended and stage.result.exists()

    def was_started(self, stage: Stage) -> bool:
        return any(line["stage"] == stage.name for line in self.lines)

    def by_stage(self) -> dict[str, dict[str, Any]]:
        """For each stage its command, the sum of seconds and the maximum of memory over all starts, and whether a start
        has no end: a kill, whose seconds are unknown."""
        found: dict[str, dict[str, Any]] = {}
        for line in self.lines:
            nothing = {"command": "", "seconds": 0.0, "peak_gb": 0.0, "starts": 0, "ends": 0}
            row = found.setdefault(line["stage"], nothing)
            if "status" not in line:
                row |= {"command": line["command"], "starts": row["starts"] + 1}
                continue
            row["seconds"] += line["seconds"]
            row["peak_gb"] = max(row["peak_gb"], line["peak_gb"])
            row["ends"] += 1
        return {name: {**row, "killed": row.pop("starts") > row.pop("ends")} for name, row in found.items()}

    def _read(self, number: int, line: str) -> dict[str, Any] | None:
        """None for a line that a kill cut. Raises ComparisonError for one of another shape."""
        try:
            content = json.loads(line)
        except ValueError:
            return None
        kind = _End if isinstance(content, dict) and "status" in content else _Start
        try:
            TypeAdapter(kind).validate_json(line, strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            reason = ": ".join((".".join(map(str, first["loc"])), first["msg"]))
            raise ComparisonError(
                f"{self.path}, line {number}, is not a line of this version ({reason}); remove this line; its stage "
                "then runs again"
            ) from None
        return content

    @staticmethod
    def _last_byte(file: BinaryIO) -> bytes:
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def _run_all(stages: Stages, ran: Ran, console: Console, endpoint: Endpoint | None) -> dict[tuple[str, int], str]:
    """Runs the stages that are not done. Returns why an agent and seed has no result."""
    failed: dict[tuple[str, int], str] = {}
    todo = list(stages)
    _write_agent_files(stages, endpoint)
    with _Server(stages.layout.output / "logs/server.log") as server:
        for number, stage in enumerate(todo, 1):
            if ran.is_done(stage) or _blocked(stage, failed):
                continue
            if stage.anew is not None and ran.was_started(stage) and stage.anew.exists():
                shutil.rmtree(stage.anew)
            console.print(
                f"[{number}/{len(todo)}] $ vlm-agent {shlex.join(stage.words)}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
            if stage.served is not None:
                server.serve(stage.served, stages)
            status = _run(stage, ran, stages.layout.output / "logs")
            if status == INTERRUPTED:
                raise KeyboardInterrupt
            if not status:
                continue
            if stage.owner is None:
                raise ComparisonError(f"`vlm-agent {stage.words[0]}` failed with status {status}; its message is above")
            failed[stage.owner] = f"{stage.name} failed with status {status}; see logs/{_log_name(stage)}"
    for (key, seed), why in list(failed.items()):
        if key == SERVED:
            del failed[key, seed]
            failed |= {(name, seed): why for name, agent in stages.comparison.agents.items() if agent.served}
    return failed


def _blocked(stage: Stage, failed: Mapping[tuple[str, int], str]) -> bool:
    """Whether an earlier stage of the same agent, or the model that it asks, has failed."""
    if stage.owner is None:
        return False
    key, seed = stage.owner
    return (key, seed) in failed or (stage.served is not None and (SERVED, seed) in failed)


def _run(stage: Stage, ran: Ran, logs: Path) -> int:
    """Runs a stage; its output goes to the terminal and to its log."""
    command = [sys.executable, "-m", "vlm_agent.cli", *stage.words]
    ran.add(stage=stage.name, command=shlex.join(["vlm-agent", *stage.words]))
    logs.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with PeakMemory() as memory, (logs / _log_name(stage)).open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # noqa: S603 (no shell)
        try:
            for line in process.stdout or ():
                log.write(line)
                log.flush()
                sys.stdout.buffer.write(line)
                sys.stdout.flush()
            status = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    seconds = round(time.monotonic() - began, 1)
    ran.add(stage=stage.name, status=status, seconds=seconds, peak_gb=round(memory.peak / 1e9, 2))
    return status


def _log_name(stage: Stage) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in stage.name) + ".log"


@dataclass
class _Server:
    """Serves one run at a time, from the first stage that needs it."""

    log: Path
    _run: Path | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "_Server":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def serve(self, run: Path, stages: Stages) -> None:
        if run == self._run:
            return
        self._stack.close()
        self._run = run
        url, model = self._stack.enter_context(served_model(run, self.log, free_port()))
        seeds = [seed for seed in stages.comparison.seeds if stages.layout.of("runs", SERVED, seed) == run]
        _write_agent_files(stages, Endpoint(url, model), seeds)


def _write_agent_files(stages: Stages, endpoint: Endpoint | None, seeds: Sequence[int] | None = None) -> None:
    """The agent files of the comparison with the overrides and, where it is known, the address of the served model. A
    server has another address each time; it is not part of the identity of an agent."""
    for key, agent in stages.comparison.agents.items():
        if agent.agent is None:
            continue
        for seed in stages.seeds_of(agent):
            if seeds is not None and seed not in seeds:
                continue
            content = read_mapping(find_shipped(agent.agent), ComparisonError) | agent.overrides
            if agent.served and endpoint is not None:
                content |= {"endpoint": endpoint.url, "model": endpoint.model}
            with atomic_write(stages.layout.agent_file(key, seed)) as part:
                part.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")
