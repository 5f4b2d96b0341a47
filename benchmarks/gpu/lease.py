"""Everything that a GPU can show of the package, within the minutes for which one is lent.

    python -m benchmarks.gpu lease --minutes 8 --output FOLDER
    python -m benchmarks.gpu lease --minutes 30 --output FOLDER --device cpu        a small size: everything runs

One process measures all variants of a training step: a shape's model is built once, on the device, and its rows are
made once; each variant begins with the same weights. Evaluation follows, then runs of the package's commands beside
each other (runs.py). Most valuable first. A variant begins only if it is expected to end within the minutes; one that
fails, or needs more memory than the GPU has, does not stop the others, and the exit status is then 1.

FOLDER has lease.jsonl, a line a variant as it ends (figures or error, hardware, versions, commit, date), summary.txt,
the table, and a log a run. The same command goes on: variants with figures of this commit and hardware are kept, unless
the checkout has uncommitted changes.
"""

import argparse
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.gpu import evaluation, kernels, record, train_step
from benchmarks.gpu.runs import CHECKS

SCRIPT = ("-m", "benchmarks.gpu")


@dataclass(frozen=True)
class Variant:
    """`words`: arguments of `python -m benchmarks.gpu`. `group`: whose last variant predicts the time of the next.
    `seconds`: expected of the first."""

    name: str
    group: str
    words: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Result:
    """`figures`: None if the variant failed or was not begun, for the reason in `note`."""

    name: str
    figures: dict | None
    note: str

    @property
    def ok(self) -> bool:
        return self.figures is not None and self.figures.get("ok", True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, required=True, metavar="N", help="in which everything has to end")
    parser.add_argument("--only", nargs="+", metavar="VARIANT", help="these variants alone")


def variants(on_cpu: bool) -> Iterator[Variant]:
    """Most valuable first, as far as variants of one shape follow each other."""
    for shape, sizes in (TINY if on_cpu else FULL).items():
        words = ("train", "--shape", shape, *sizes)
        yield Variant(shape, shape, words, 60)
        yield Variant(f"{shape}_checkpointed", shape, (*words, "--checkpointing"), 15)
        if "qwen2_5" in shape or on_cpu:
            yield Variant(f"{shape}_without_dropout", shape, (*words, "--dropout", "0"), 15)
            yield Variant(f"{shape}_half_checkpointed", shape, (*words, "--checkpointing", "14"), 15)
            for name in ("lora",) if on_cpu else train_step.UNDO:
                yield Variant(f"{shape}_without_{name}", shape, (*words, "--undo", name), 15)
    shape, sizes = next(iter((TINY if on_cpu else FULL).items()))
    quantised = ("--checkpointing", "--quantisation", "nf4", *(() if on_cpu else ("--memory", "24")))
    evaluated = ("--batch", "1", "--episodes", "1", "--rounds", "1") if on_cpu else ()
    yield Variant("evaluation_speed", "evaluate", ("evaluate", "--shape", shape, *evaluated), 90)
    yield Variant(f"{shape}_nf4", "nf4", ("train", "--shape", shape, *sizes, *quantised), 60)
    sizes = ("--steps", "4", "--limit", "2") if on_cpu else ()
    for check in CHECKS:
        yield Variant(check, "runs", ("runs", "--check", check, *sizes), 120)
    yield Variant("kernels", "kernels", ("kernels", *(("--screens", "1", "--dtype", "float32") if on_cpu else ())), 10)
    for name in () if on_cpu else evaluation.UNDO:
        yield Variant(f"evaluation_without_{name}", "evaluate", ("evaluate", "--shape", shape, "--undo", name), 90)


_TIMED = ("--warm-up", "2", "--steps", "4")
FULL = {
    "qwen2_5_vl_7b": ("--batch", "2", *_TIMED),
    "qwen3_vl_8b": ("--batch", "2", *_TIMED),
    "llama2_7b_vit_l": ("--batch", "8", *_TIMED),
}
TINY = {"qwen_tiny": ("--batch", "1", "--episodes", "1", "--warm-up", "1", "--steps", "1")}


def main(options: argparse.Namespace, parse: Callable[[Sequence[str]], argparse.Namespace]) -> int:
    """`parse`: the options of a variant's words. Returns the exit status."""
    if options.output is None:
        raise SystemExit("lease needs --output FOLDER")
    options.output.mkdir(parents=True, exist_ok=True)
    options.commit = options.commit or record.commit()
    lease = Lease(options, parse)
    chosen = [one for one in variants(options.device == "cpu") if options.only is None or one.name in options.only]
    alone = [one for one in chosen if one.group != "runs"]
    together = [one for one in chosen if one.group == "runs"]
    before = chosen.index(together[0]) if together else len(alone)
    for variant in alone[:before]:
        lease.measure(variant)
    lease.measure_runs(together)
    for variant in alone[before:]:
        lease.measure(variant)
    table = summary(lease.results)
    (options.output / "summary.txt").write_text(table + "\n", encoding="utf-8")
    print(f"\n{table}")
    return 0 if all(result.ok for result in lease.results) else 1


class Lease:
    """Measures variants one after the other while the time lasts. `results`: in their order."""

    def __init__(self, options: argparse.Namespace, parse: Callable[[Sequence[str]], argparse.Namespace]):
        self.options, self.parse = options, parse
        self.end = time.monotonic() + 60 * options.minutes
        self.lines = options.output / "lease.jsonl"
        self.hardware = record.hardware(options.device)
        self.results: list[Result] = []
        self.expected: dict[str, float] = {}
        self.shape = PreparedShape()

    def measure(self, variant: Variant) -> None:
        if not self._is_due(variant):
            return
        words = self._words(variant)
        started, figures, error = time.monotonic(), None, ""
        try:
            figures = self._figures(self.parse(words))
        except (Exception, SystemExit) as failure:  # noqa: BLE001 (also that memory is short)
            error = first_line(failure)
        if figures is None:
            self.shape.free()  # only now, when no traceback holds tensors
        self._add(variant, figures, error, time.monotonic() - started)

    def _figures(self, options: argparse.Namespace) -> dict:
        if options.benchmark == "train":
            return self.shape.train(options)
        self.shape.free()
        return {"evaluate": evaluation, "kernels": kernels}[options.benchmark].measure(options)

    def measure_runs(self, variants: Sequence[Variant]) -> None:
        """The first one by itself, whose run the others read; these beside each other."""
        due = [variant for variant in variants if self._is_due(variant)]
        if not due:
            return
        self.shape.free()
        with tempfile.TemporaryDirectory() as folder:
            started = {one: self._start(one, Path(folder)) for one in due[:1]}
            self._finish(started, Path(folder))
            started = {one: self._start(one, Path(folder)) for one in due[1:]}
            self._finish(started, Path(folder))

    def _start(self, variant: Variant, folder: Path) -> subprocess.Popen:
        output = folder / f"{variant.name}.json"
        where = ("--folder", str(folder), "--commit", self.options.commit, "--output", str(output))
        with self._log(variant).open("w", encoding="utf-8") as log:
            command = [sys.executable, *SCRIPT, *self._words(variant), *where]
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def _finish(self, processes: dict[Variant, subprocess.Popen], folder: Path) -> None:
        started = time.monotonic()
        try:
            for variant, process in processes.items():
                figures, error = self._figures_of_run(variant, process, folder)
                self._add(variant, figures, error, time.monotonic() - started)
        finally:
            for process in processes.values():
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def _figures_of_run(self, variant: Variant, process: subprocess.Popen, folder: Path) -> tuple[dict | None, str]:
        try:
            status = process.wait(max(0.0, self.end - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None, "did not end within the minutes"
        if status != 0:
            return None, last_line(self._log(variant))
        return json.loads((folder / f"{variant.name}.json").read_text(encoding="utf-8"))["figures"], ""

    def _is_due(self, variant: Variant) -> bool:
        """Whether it has to be measured now; otherwise adds its result: kept, or not begun."""
        if (kept := self._kept(variant)) is not None:
            self.results.append(Result(variant.name, kept, f"kept: {headline(kept)}"))
            return False
        left, expected = self.end - time.monotonic(), self.expected.get(variant.group, variant.seconds)
        if left < expected:
            note = f"not begun: it takes about {expected:.0f} s of {max(0.0, left):.0f}"
            self.results.append(Result(variant.name, None, note))
            return False
        print(f"{variant.name} …", flush=True)
        return True

    def _kept(self, variant: Variant) -> dict | None:
        if not self.lines.exists() or self.options.commit.endswith("-dirty"):
            return None
        same = {
            "commit": self.options.commit,
            "hardware": self.hardware,
            "command": record.command(self._words(variant)),
        }
        for text in reversed(self.lines.read_text(encoding="utf-8").splitlines()):
            line = json.loads(text)
            if line.items() >= same.items() and (line["figures"] or {"ok": False}).get("ok", True):
                return line["figures"]
        return None

    def _add(self, variant: Variant, figures: dict | None, error: str, seconds: float) -> None:
        options = argparse.Namespace(benchmark=variant.words[0], device=self.options.device, commit=self.options.commit)
        line = {"variant": variant.name} | record.record(options, figures)
        line |= {"command": record.command(self._words(variant)), "error": error or None, "wall_s": round(seconds, 1)}
        with self.lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.expected[variant.group] = seconds
        note = error if figures is None else headline(figures)
        self.results.append(Result(variant.name, figures, f"{note} ({seconds:.0f} s)"))
        print(f"    {self.results[-1].note}", flush=True)

    def _words(self, variant: Variant) -> list[str]:
        return [*variant.words, "--device", self.options.device]

    def _log(self, variant: Variant) -> Path:
        return self.options.output / f"{variant.name}.log"


class PreparedShape:
    """The model and rows of the last training step, for the next one if it has the same."""

    def __init__(self) -> None:
        self.key: tuple | None = None

    def train(self, options: argparse.Namespace) -> dict:
        names = ("shape", "batch", "episodes", "quantisation", "memory", "warm_up", "steps")
        key = tuple(getattr(options, name) for name in names)
        if key != self.key:
            self.free()
            self.run, episodes = train_step.prepare(options, options.quantisation, options.memory)
            self.rows = train_step.make_rows(self.run, episodes, options)
            trained = (weight for weight in self.run.model.parameters() if weight.requires_grad)
            self.begin = [(weight, weight.detach().to("cpu", copy=True)) for weight in trained]  # not in the peak
            self.key = key
        with torch.no_grad():
            for weight, value in self.begin:
                weight.copy_(value)
        self.run.optimizer.zero_grad()
        self.run.optimizer.state.clear()
        release_memory()
        torch.manual_seed(0)
        return train_step.measure_rows(self.run, self.rows, options)

    def free(self) -> None:
        self.key = self.run = self.rows = self.begin = None
        release_memory()


def release_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def first_line(failure: BaseException) -> str:
    text = str(failure).strip().splitlines()
    return f"{type(failure).__name__}: {text[0][:200] if text else 'no message'}"


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "no message"


def headline(figures: dict) -> str:
    """The one or two numbers of a variant that a reader looks for."""
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
    """One line a variant: name, verdict, figures."""
    width = max((len(result.name) for result in results), default=0)
    lines = [f"{result.name:<{width}}  {'ok    ' if result.ok else 'FAILED'}  {result.note}" for result in results]
    failed = sum(not result.ok for result in results)
    return "\n".join([*lines, f"{len(results) - failed} of {len(results)} variants ok"])
