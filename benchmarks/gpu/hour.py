"""The first hour on a machine with GPUs, in one command: what every recipe's shape reaches, and whether runs are right.

    python -m benchmarks.gpu hour --output FOLDER
    python -m benchmarks.gpu hour --output FOLDER --device cpu        a small size, to see that everything runs

Each stage is a process of its own and writes FOLDER/STAGE.json (figures, hardware, commit, date) and
FOLDER/logs/STAGE.log. A stage that fails does not stop the others; the table at the end lists it, and the exit status
is then 1. Run the same command again to resume: a stage with figures of this commit and hardware is kept, unless the
checkout has uncommitted changes.

Stages: `kernels`; `train_SHAPE`, as installed, and without each faster attention (`_without_…`); `evaluate_SHAPE`;
`sharding` (DDP, ZeRO-2 and ZeRO-3 agree over 20 steps), `resume` (after SIGTERM), `merge`, `evaluation`. Shapes have
random weights, so that nothing has to be downloaded.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu import record
from benchmarks.gpu.runs import CHECKS

SCRIPT = ("-m", "benchmarks.gpu")


@dataclass(frozen=True)
class Stage:
    """`arguments`: of gpu.py. `minutes`: after which it is ended and has failed."""

    name: str
    arguments: tuple[str, ...]
    minutes: float = 15


@dataclass(frozen=True)
class Result:
    """`figures`: None if the stage failed, for the reason in `note`."""

    stage: Stage
    figures: dict | None
    note: str

    @property
    def ok(self) -> bool:
        return self.figures is not None and self.figures.get("ok", True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", metavar="STAGE", help="these stages alone")


def main(options: argparse.Namespace) -> int:
    if options.output is None:
        raise SystemExit("hour needs --output FOLDER")
    commit, hardware = options.commit or record.commit(), record.hardware(options.device)
    chosen = [stage for stage in stages(options) if options.only is None or stage.name in options.only]
    results = []
    for number, stage in enumerate(chosen, 1):
        print(f"[{number}/{len(chosen)}] {stage.name} …", flush=True)
        results.append(run(stage, options.output, commit, hardware, options.device))
        print(f"    {results[-1].note}", flush=True)
    table = summary(results)
    (options.output / "summary.txt").write_text(table + "\n", encoding="utf-8")
    print(f"\n{table}")
    return 0 if all(result.ok for result in results) else 1


def stages(options: argparse.Namespace) -> Iterator[Stage]:
    on_cpu = options.device == "cpu"
    yield Stage("kernels", ("kernels", *(["--screens", "1"] if on_cpu else [])))
    for shape, settings in (TINY if on_cpu else FULL).items():
        yield Stage(f"train_{shape}", ("train", "--shape", shape, *settings))
        for slower in without(shape):
            yield Stage(f"train_{shape}_without_{slower}", ("train", "--shape", shape, *settings, "--undo", slower))
    sizes = ("--batch", "1", "--episodes", "2", "--rounds", "1") if on_cpu else ("--batch", "2")
    for shape in TINY if on_cpu else FULL:
        yield Stage(f"evaluate_{shape}", ("evaluate", "--shape", shape, *sizes))
    commit = options.commit or record.commit()
    # Runs of uncommitted code may be those of other code by the next hour.
    runs = f"{commit}-{time.time_ns()}" if commit.endswith("-dirty") else commit
    where = ("--folder", str(options.output / "runs" / runs))
    sizes = ("--steps", "6", "--limit", "2") if on_cpu else ()
    for check in CHECKS:
        yield Stage(check, ("runs", "--check", check, *where, *sizes))


FULL = {
    "llama2_7b_vit_l": ("--batch", "3"),
    "qwen2_5_vl_7b": ("--batch", "2", "--checkpointing"),
    "qwen3_vl_8b": ("--batch", "2", "--checkpointing"),
}
"""Shapes as their recipes train them, in rows that fit 80 GB."""
TINY = dict.fromkeys(("llama_vit", "qwen_7b_head"), ("--episodes", "2", "--steps", "2", "--warm-up", "1"))


def without(shape: str) -> list[str]:
    """What to leave out for comparison: torch's kernel, and the bounds of windows from the host."""
    return ["varlen", *(["windows"] if "qwen2_5" in shape or "qwen_7b" in shape else [])]


def run(stage: Stage, folder: Path, commit: str, hardware: str, device: str) -> Result:
    """The figures of a stage, from its file if they are those of this commit, hardware and arguments."""
    file, log = folder / f"{stage.name}.json", folder / "logs" / f"{stage.name}.log"
    words = [*stage.arguments, "--device", device]
    if (found := _kept(file, commit, hardware, words)) is not None:
        return Result(stage, found, f"kept: {headline(found)}")
    log.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    command = [sys.executable, *SCRIPT, *words, "--commit", commit, "--output", str(part)]
    started = time.monotonic()
    status = _finished(command, log, stage.minutes)
    if status is None:
        return Result(stage, None, f"FAILED: no result after {stage.minutes:g} minutes; see {log}")
    if status != 0:
        return Result(stage, None, f"FAILED: {last_line(log)}; see {log}")
    part.replace(file)
    figures = json.loads(file.read_text(encoding="utf-8"))["figures"]
    verdict = "" if figures.get("ok", True) else "FAILED: "
    return Result(stage, figures, f"{verdict}{headline(figures)} ({time.monotonic() - started:.0f} s)")


def _finished(command: list[str], log: Path, minutes: float) -> int | None:
    """The exit status; None if the time is over, after every process that the command started was ended."""
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return process.wait(60 * minutes)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return None
            raise


def _kept(file: Path, commit: str, hardware: str, words: list[str]) -> dict | None:
    if not file.exists() or commit.endswith("-dirty"):
        return None
    found = json.loads(file.read_text(encoding="utf-8"))
    same = (found["commit"], found["hardware"]) == (commit, hardware)
    same = same and found["command"] == record.command(words) and found["figures"].get("ok", True)
    return found["figures"] if same else None


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "no message"


def headline(figures: dict) -> str:
    """The one or two numbers of a stage that a reader looks for."""
    if "tokens_per_step" in figures:
        mfu = "" if figures["mfu"] is None else f", MFU {figures['mfu']:.1%}"
        peak, estimated = figures["peak_bytes"] / 1e9, figures["estimated_peak_bytes"] / 1e9
        return f"{figures['tokens_per_second']:,.0f} tokens/s{mfu}, peak {peak:.1f} GB (estimated {estimated:.1f})"
    if "prefill" in figures:
        return " and ".join(
            f"{figures[kind]['steps_per_second']:.1f} steps/s ({kind})" for kind in ("prefill", "decoding")
        )
    if "window_attention" in figures:
        times = {name: value for name, value in figures["window_attention"].items() if name.endswith("_ms")}
        return "windows: " + ", ".join(f"{name.removesuffix('_ms')} {value:.2f} ms" for name, value in times.items())
    if "difference" in figures:
        return f"largest relative difference of losses {_largest(figures['difference']):.2g}"
    return ", ".join(f"{name} {value:.3g}" for name, value in figures.items() if isinstance(value, float))


def _largest(difference: float | dict[str, float]) -> float:
    return max(difference.values()) if isinstance(difference, dict) else difference


def summary(results: list[Result]) -> str:
    """One line a stage: name, verdict, figures."""
    width = max((len(result.stage.name) for result in results), default=0)
    lines = [
        f"{result.stage.name:<{width}}  {'ok    ' if result.ok else 'FAILED'}  {result.note}" for result in results
    ]
    failed = sum(not result.ok for result in results)
    return "\n".join([*lines, f"{len(results) - failed} of {len(results)} stages ok"])
