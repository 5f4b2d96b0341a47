"""How much of the package one has to read, as one table beside its goals.

    python tools/measure_structure.py                      # this checkout
    python tools/measure_structure.py /path/to/another     # another checkout, to compare two commits
    python tools/measure_structure.py --modules            # also the modules of both trips

Run it with the environment of `make install`. Both trips run commands in a process of their own, under a profiler that
notes each function of `vlm_agent` that is entered; a module, a function and the lines of a function count once. What
runs during an import and the building of the argument parser count as nothing.

- first loss: `train` with the demo's recipe on a few simulated episodes, from the command line to the first backward
  pass.
- first verdict: `evaluate` on that run, from the command line to the end of the first call of `judge_steps`.
"""

import argparse
import ast
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from check_words import headless

PACKAGE = "vlm_agent"
WINGS = ("simulator",)
"""Packages that a reader of the spine need not open."""

RECIPE = "recipes/phone_vlm_tiny_lora.yaml"


class Row(NamedTuple):
    """One figure of the table. `goal`: the greatest value that is accepted; None: no goal."""

    name: str
    value: int
    goal: int | None = None

    @property
    def is_met(self) -> bool:
        return self.goal is None or self.value <= self.goal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--json", action="store_true", help="print the rows, and the functions of both trips, as JSON")
    parser.add_argument("--no-trips", action="store_true", help="only what needs no run")
    parser.add_argument("--modules", action="store_true", help="print the modules of both trips")
    parser.add_argument("--trace-in", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    checkout = options.checkout.resolve()
    if options.trace_in is not None:
        take_trips(checkout, options.trace_in)
        return 0
    trips = {} if options.no_trips else run_trips(checkout)
    rows = [*trip_rows(trips), *text_rows(checkout)]
    if options.json:
        print(json.dumps({"rows": [row._asdict() for row in rows], "trips": trips}, indent=2))
        return 0
    for row in rows:
        goal = "" if row.goal is None else f"≤ {row.goal:,}" + ("" if row.is_met else "  over")
        print(f"{row.name:62} {row.value:>8,}  {goal}".rstrip())
    if options.modules:
        for name, functions in trips.items():
            print("\n".join([f"\n{name}:", *sorted({f"  {function['module']}" for function in functions})]))
    return 0


# What the text of the package shows.


def text_rows(checkout: Path) -> list[Row]:
    texts = {path.relative_to(checkout): path.read_text(encoding="utf-8") for path in modules(checkout)}
    training = {path: text for path, text in texts.items() if path.parts[:2] == (PACKAGE, "training")}
    spine = [text for path, text in texts.items() if path.parts[1] not in WINGS]
    docs = prose(checkout)
    return [
        Row("modules of training/ with backward( and .step(", naming(training, r"\.backward\(", r"\.step\("), 1),
        Row("lines of training/train.py", lines(training.get(Path(PACKAGE, "training/train.py"), "")), 260),
        Row("lines of the function that calls backward(", lines_around_backward(training), 50),
        Row("lines of training/ with Trainer and its kin", lines_with(training, _TRAINER), 0),
        Row("modules that name flags of languages", naming(texts, _FLAGS), 1),
        Row("modules that name CoAT", naming(texts, r"(?i)coat"), 20),
        Row("modules that name plans of D-PoT", naming(texts, _PLANS), 25),
        Row("modules of the spine", len(spine)),
        Row("lines of the spine", sum(map(lines, spine)), 50_000),
        Row("entries at the top of the package", len(top_entries(checkout)), 20),
        Row("options of evaluate", options_of_evaluate(checkout), 22),
        Row("pages of docs/", len(list((checkout / "docs").glob("*.md"))), 9),
        Row("words in docs/ and README", sum(len(text.split()) for text in docs), 16_400),
        Row("words in README", len((checkout / "README.md").read_text(encoding="utf-8").split()), 700),
        Row("words of a sentence in docs/ and README, 90 % quantile", long_sentence(docs), 22),
        Row("lines that speak of earlier versions", lines_with(texts, _EARLIER), 0),
        Row("docstrings that begin with Of, Those, That of, As", headless_docstrings(checkout), 0),
    ]


_TRAINER = r"\b(Trainer|TrainingArguments|TrainerCallback)\b"
_FLAGS = r"\b(text_keys|names_touched_elements|numbers_elements)\b"
_PLANS = r"PlanTexts|\.plan\b|plans"
_EARLIER = (
    r"(earlier|older|previous|old) version(?!s? of (transformers|Android))|[Oo]mitted by default|of any version|"
    r"of version 1\b|\bversions? (that (wrote|did)|without|before)|\b(RENAMED|REMOVED|_ABSENT_IF_NONE|earlier_keys)\b"
)


def modules(checkout: Path) -> list[Path]:
    return sorted(Path(checkout, PACKAGE).rglob("*.py"))


def lines(text: str) -> int:
    return len(text.splitlines())


def naming(texts: dict[Path, str], *patterns: str) -> int:
    """The number of modules in which every pattern occurs."""
    return sum(all(re.search(pattern, text) for pattern in patterns) for text in texts.values())


def lines_with(texts: dict[Path, str], pattern: str) -> int:
    return sum(bool(re.search(pattern, line)) for text in texts.values() for line in text.splitlines())


def lines_around_backward(texts: dict[Path, str]) -> int:
    """The lines of the longest function that itself calls `backward`; 0 if a library does it."""
    nodes = (node for text in texts.values() for node in ast.walk(ast.parse(text)))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    found = [one for one in functions if any(map(_calls_backward, ast.walk(one)))]
    return max(((one.end_lineno or one.lineno) - one.lineno + 1 for one in found), default=0)


def _calls_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"


def top_entries(checkout: Path) -> list[str]:
    """Packages and modules at the top of the package."""
    entries = Path(checkout, PACKAGE).iterdir()
    return sorted(one.name for one in entries if not one.name.startswith("_") and (one.is_dir() or one.suffix == ".py"))


def options_of_evaluate(checkout: Path) -> int:
    script = (
        "from vlm_agent.cli.parser import make_parser; import argparse; parser = make_parser(); "
        "commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction)); "
        "shown = [a for a in commands.choices['evaluate']._actions if a.help != argparse.SUPPRESS]; "
        "print(sum('-h' not in a.option_strings for a in shown))"
    )
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return int(ran.stdout)


def prose(checkout: Path) -> list[str]:
    """README and every page of `docs/`."""
    return [path.read_text(encoding="utf-8") for path in [checkout / "README.md", *(checkout / "docs").rglob("*.md")]]


def long_sentence(texts: list[str]) -> int:
    """The 90 % quantile of the number of words of a sentence, without code, tables and headings."""
    lengths: list[int] = []
    for text in texts:
        without_code = re.sub(r"```.*?```|^( {4}|\||#).*?$", "", text, flags=re.DOTALL | re.MULTILINE)
        sentences = re.split(r"(?<=[.:?!])\s|\n\s*\n|\n\s*(?:[-*]|\d+\.) ", without_code)
        lengths += [len(sentence.split()) for sentence in sentences if len(sentence.split()) > 1]
    return round(statistics.quantiles(lengths, n=10)[-1])


def headless_docstrings(checkout: Path) -> int:
    """Docstrings of the package, also those of attributes, that begin with a genitive without its noun."""
    return sum(len(list(headless(path))) for path in modules(checkout))


# What a run enters.


def trip_rows(trips: dict[str, list[dict[str, Any]]]) -> list[Row]:
    rows = []
    for name, functions in trips.items():
        covered = {(one["module"], line) for one in functions for line in range(one["first"], one["last"] + 1)}
        rows += [
            Row(f"{name}: modules", len({one["module"] for one in functions}), 45),
            Row(f"{name}: functions", len(functions)),
            Row(f"{name}: lines of these functions", len(covered), 2_000),
        ]
    return rows


def run_trips(checkout: Path) -> dict[str, list[dict[str, Any]]]:
    """Trip → the functions that it enters: module, name, first and last line."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, str(checkout), "--trace-in", folder]
        ran = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
        if ran.returncode:
            raise SystemExit(f"the commands failed in {checkout}:\n{ran.stdout[-2000:]}\n{ran.stderr[-4000:]}")
        trips: dict[str, list[dict[str, Any]]] = json.loads(Path(folder, "trips.json").read_text())
        return trips


def take_trips(checkout: Path, folder: Path) -> None:
    import vlm_agent.training.train  # type: ignore[import-not-found]  # noqa: F401  (an import in a trip takes thrice as long)
    from vlm_agent.cli import main as command

    aitw, shards, run = folder / "aitw", folder / "shards", folder / "run"
    _succeed(command, "simulate", "--output", aitw, "--episodes", 12, "--workers", 1)
    convert = ("convert", "--input", aitw, "--output", shards, "--splits", aitw / "splits.json", "--workers", 1)
    _succeed(command, *convert)
    settings = ("--data.shards", shards, "--data.workers", 0, "--training.steps", 1, "--training.bf16", "false")
    loss = Trip(checkout, "call", _is_backward)
    with loss:
        _succeed(command, "train", "--config", checkout / RECIPE, "--output", run, *settings)
    verdict = Trip(checkout, "return", lambda frame: frame.f_code.co_name == "judge_steps")
    with verdict:
        evaluate = ("--checkpoint", run, "--shards", shards, "--split", "train", "--limit", 1, "--controls", "none")
        _succeed(command, "evaluate", *evaluate, "--output", folder / "evaluation")
    found = {"first loss": list(loss.functions()), "first verdict": list(verdict.functions())}
    Path(folder, "trips.json").write_text(json.dumps(found))


def _succeed(command: Callable[[list[str]], int], *words: object) -> None:
    if status := command([str(word) for word in words]):
        raise SystemExit(f"{words[0]} ended with status {status}")


class Trip:
    """A block in which the functions of the package that run are noted, of all threads, until the first `event` (a
    call or a return) of a frame that `is_end`."""

    def __init__(self, checkout: Path, event: str, is_end: Callable[[FrameType], bool]) -> None:
        self._package = str(checkout / PACKAGE) + os.sep
        self._event, self._is_end, self._ended = event, is_end, False
        self._codes: set[CodeType] = set()
        self._left_out: list[FrameType] = []

    def __enter__(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, value: object) -> None:
        if event not in ("call", "return") or self._ended:
            return
        self._ended = event == self._event and self._is_end(frame)
        if event == "call" and (_imports(frame.f_code) or self._builds_parser(frame.f_code)):
            self._left_out.append(frame)
        elif event == "return" and self._left_out and self._left_out[-1] is frame:
            self._left_out.pop()
        elif event == "call" and not self._left_out and frame.f_code.co_filename.startswith(self._package):
            self._codes.add(frame.f_code)

    def _builds_parser(self, code: CodeType) -> bool:
        return code.co_name in ("add", "make_parser") and code.co_filename.startswith(f"{self._package}cli{os.sep}")

    def functions(self) -> Iterator[dict[str, Any]]:
        """Comprehensions and lambdas belong to the function around them."""
        for code in sorted(self._codes, key=lambda code: (code.co_filename, code.co_firstlineno)):
            module = f"{PACKAGE}/{code.co_filename.removeprefix(self._package)}"
            if not code.co_name.startswith("<"):
                last = max(line for part in _nested(code) for _, _, line in part.co_lines() if line is not None)
                yield {"module": module, "name": code.co_qualname, "first": code.co_firstlineno, "last": last}


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _imports(code: CodeType) -> bool:
    """A module's own code, and the machinery that finds modules."""
    return code.co_name == "<module>" or code.co_filename.startswith("<frozen importlib")


def _is_backward(frame: FrameType) -> bool:
    return frame.f_code.co_name == "backward" and Path(frame.f_code.co_filename).parts[-2:] == ("torch", "_tensor.py")


if __name__ == "__main__":
    sys.exit(main())
