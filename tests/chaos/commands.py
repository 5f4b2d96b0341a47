"""Commands of `vlm-agent` that are killed at random moments and started again until they end by themselves."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from chaos.findings import Findings, Memory, Record, differences

STOPPED = 75
"""The exit status of training that a signal stopped."""

FINISHED = (0,)

MAX_KILLS = 4
PATIENCE = 900.0
ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}


@dataclass
class Scene:
    """What all parts of a chaos run share. `folder`: working folder of every command."""

    folder: Path
    seed: int
    findings: Findings
    memory: Memory
    end: float = field(default=float("inf"))

    def rng(self, name: str) -> random.Random:
        return random.Random(f"chaos {self.seed} {name}")

    def is_over(self) -> bool:
        return time.monotonic() > self.end

    def start(self, name: str, words: list[str], **pipes) -> subprocess.Popen:
        """Starts `vlm-agent WORDS` in a session of its own; its output is appended to logs/NAME.log."""
        log = self.folder / "logs" / f"{name}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("ab") as file:
            file.write(f"$ vlm-agent {' '.join(words)}\n".encode())
            file.flush()
            process = subprocess.Popen(
                [sys.executable, "-m", "vlm_agent.cli", *words],
                cwd=self.folder,
                env=os.environ | ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=pipes.get("stdout", file),
                stderr=file,
                start_new_session=True,
            )
        self.memory.watch(name, process.pid)
        return process

    def run(self, name: str, words: list[str]) -> tuple[int, str]:
        """Runs a command to its end: its exit status, and what it printed to stdout and stderr."""
        log = self.folder / "logs" / f"{name}.log"
        before = log.stat().st_size if log.exists() else 0
        status = self.start(name, words).wait(PATIENCE)
        with log.open("rb") as file:
            file.seek(before)
            return status, file.read().decode(errors="replace").partition("\n")[2]


@dataclass
class Victim:
    """A command that writes into a new folder, its words with `{output}` for that folder.

    `undisturbed` runs it in peace and keeps its record; `round` disturbs it in another folder and compares.
    """

    scene: Scene
    name: str
    words: list[str]
    record: Record
    expected: dict = field(default_factory=dict)
    seconds_to_start: float = 0.0
    seconds_of_work: float = 0.0

    def undisturbed(self) -> None:
        folder = self.scene.folder / self.name
        begin = time.monotonic()
        process = self.scene.start(f"{self.name} undisturbed", self._command(folder))
        while process.poll() is None and not _has_files(folder):
            time.sleep(0.01)
        self.seconds_to_start = time.monotonic() - begin
        status = process.wait(PATIENCE)
        self.seconds_of_work = time.monotonic() - begin - self.seconds_to_start
        if status != 0:
            raise SystemExit(f"{self.name} failed undisturbed with status {status}; see logs/{self.name}*.log")
        self.expected = self.record(folder)

    def rounds_until_the_end(self) -> None:
        rng, number = self.scene.rng(self.name), 0
        while not self.scene.is_over():
            self.round(number, rng)
            number += 1

    def round(self, number: int, rng: random.Random) -> None:
        """One result in a new folder, with up to `MAX_KILLS` kills on the way."""
        folder = self.scene.folder / "rounds" / f"{self.name}-{number}"
        kills = rng.randint(1, MAX_KILLS)
        for kill in range(kills + 1):
            process = self.scene.start(self.name, self._command(folder))
            is_killed = kill < kills and not self.scene.is_over()
            expected = self._kill(process, folder, rng) if is_killed else FINISHED
            if self._status(process, expected) == 0:
                break
        else:
            self.scene.findings.violation(self.name, f"{folder.name} was not finished when it was left alone")
            return
        self._compare(folder)

    def _command(self, folder: Path) -> list[str]:
        return [word.replace("{output}", str(folder)) for word in self.words]

    def _kill(self, process: subprocess.Popen, folder: Path, rng: random.Random) -> tuple[int, ...]:
        """Kills the process, its group, or one of its children, at a moment before or during its work.

        Returns the exit statuses that it may have then.
        """
        begins_early = rng.random() < 0.2
        moment = rng.uniform(0, self.seconds_to_start) if begins_early else rng.uniform(0, 2 * self.seconds_of_work)
        number, whom = rng.choice((signal.SIGKILL, signal.SIGTERM)), rng.choice(("process", "group", "child"))
        before = _newest(folder)
        while not begins_early and process.poll() is None and _newest(folder) == before:
            time.sleep(0.01)
        deadline = time.monotonic() + moment
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        if process.poll() is not None:
            return FINISHED
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            children = psutil.Process(process.pid).children(recursive=True)
            if whom == "child" and children:
                rng.choice(children).send_signal(number)
                whom = "a child"
            elif whom == "group":
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
                whom = "process"
            self.scene.findings.count(self.name, f"{number.name} to {whom}")
            return (0, 1) if whom == "a child" else (0, -number, STOPPED)
        return FINISHED

    def _status(self, process: subprocess.Popen, expected: tuple[int, ...]) -> int:
        """The exit status of the command, which should be one of those expected."""
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.scene.findings.violation(self.name, f"hung for {PATIENCE:.0f} s")
            return process.wait()
        self.scene.findings.count(self.name, f"exit {status}")
        if status not in expected:
            self.scene.findings.violation(self.name, f"exit status {status}, expected {expected}; see its log")
        return status

    def _compare(self, folder: Path) -> None:
        self.scene.findings.count(self.name, "rounds")
        changes = differences(self.expected, self.record(folder))
        for change in changes[:5]:
            self.scene.findings.violation(self.name, f"{folder.name}: {change}")
        if not changes:
            shutil.rmtree(folder)


def in_threads(*works) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    return threads


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _newest(folder: Path) -> float:
    """The last modification below the folder, 0 without a file."""
    times = [0.0]
    with suppress(OSError):
        for path in folder.rglob("*"):
            with suppress(OSError):
                times.append(path.stat().st_mtime)
    return max(times)
