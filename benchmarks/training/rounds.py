"""The methods ("roads") of training, and rounds in which each runs once, in a new process."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.training.agreement import check, differences
from benchmarks.training.shapes import Shape

_ROOT = Path(__file__).resolve().parents[2]
_SYSTEM_TURN = ("<|im_start|>system\n", "<|im_end|>")


@dataclass(frozen=True)
class Road:
    """A method: the script `module` with `options`. `steps`: the number of timed optimiser steps."""

    letter: str
    name: str
    about: str
    module: str
    options: tuple[str, ...]
    steps: int = 3

    @property
    def is_peer(self) -> bool:
        return self.module == "trl_road"


def _ours(letter: str, name: str, about: str, steps: int = 3) -> Road:
    return Road(letter, name, about, "road", ("--road", name), steps)


ROADS = (
    _ours("a", "step_samples", "one sample per step", steps=1),
    _ours("b", "padded", "padded, all logits"),
    _ours("c", "packed", "ours"),
    Road("p", "trl", "TRL", "trl_road", ()),
    Road("p", "trl_labels_only", "TRL, logits at labels", "trl_road", ("--labels-only",)),
)


@dataclass(frozen=True)
class Bench:
    """The folder of the episodes, the peer's Python (None: not installed), the chosen methods, and their threads."""

    folder: Path
    peer_python: Path | None
    asked: Sequence[str]
    threads: int
    quick: bool

    def left_out(self, road: Road) -> str | None:
        """The reason why the method cannot run here, or None."""
        if road.name not in self.asked:
            return "it was not asked for"
        if road.is_peer and self.peer_python is None:
            return "no TRL at hand; see --with-peer and --peer-python"
        return None

    def run_rounds(self, shape: Shape, count: int) -> tuple[dict[str, list[dict]], dict]:
        """road → its runs, which take turns, so that noise hits all alike; and how far their gradients are apart.

        Raises SystemExit after the first round where the roads do not agree.
        """
        roads = [road for road in ROADS if self.left_out(road) is None]
        roads = [road for road in roads if shape.family == "qwen2_5_vl" or not road.is_peer]
        runs = {road.name: [] for road in roads}
        for number in range(count):
            # Quick runs are not for their figures, so they may disturb each other.
            with ThreadPoolExecutor(self.threads if self.quick else 1) as pool:
                for road, done in zip(roads, pool.map(lambda road: self._run(road, shape), roads), strict=True):
                    runs[road.name].append(done)
            if number == 0:
                apart = self._compare(runs)
        return runs, apart

    def _compare(self, runs: dict[str, list[dict]]) -> dict:
        reference, *others = runs
        apart = differences(self._gradients(reference), {name: self._gradients(name) for name in others})
        check({name: done[0]["losses"][0] for name, done in runs.items()}, apart)
        return apart

    def _gradients(self, road: str) -> Path:
        return self.folder / f"{road}.safetensors"

    def _run(self, road: Road, shape: Shape) -> dict:
        command = [
            self.peer_python if road.is_peer else sys.executable,
            "-m",
            f"benchmarks.training.{road.module}",
            *road.options,
        ]
        command += ["--shape", shape.name, "--vocabulary", shape.vocabulary, "--data", self.folder]
        threads = 1 if self.quick else self.threads
        command += ["--steps", 1 if self.quick else road.steps, "--threads", threads]
        command += ["--gradients", self._gradients(road.name)]
        return run_process([*command, "--system", system_words()] if road.is_peer else command, threads)


def run_process(command: list, threads: int) -> dict:
    """What the process prints as its last line. Raises SystemExit where it does not end with status 0."""
    environment = os.environ | {"PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with status {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def system_words() -> str:
    """What our conversations tell the model before the goal."""
    from vlm_agent.models.qwen_vl.model import CHAT_TURNS

    return CHAT_TURNS.start.partition(_SYSTEM_TURN[0])[2].partition(_SYSTEM_TURN[1])[0]
