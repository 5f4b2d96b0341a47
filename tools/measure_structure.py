"""How much of the package one has to read: loose files, annotations, type errors, and the length of three trips.

    python tools/measure_structure.py            # this checkout
    python tools/measure_structure.py /path/to/another/checkout

Run it with the environment of `make install`. It works on any commit that has the commands `simulate`, `convert`,
`train` and `evaluate`, so that two commits can be compared.

Trips are measured by running the commands once in one process, under a profiler that notes each function of
`vlm_agent` that is entered:

- record: one AITW record to its labels. `convert` of a few simulated episodes, then `train` as far as the first
  collated row (what runs below PyTorch's `fetch`).
- load: one checkpoint to an agent. What runs below the agent's loading function in `evaluate`.
- judge: one prediction to its verdict. What runs below `judge_steps` in `evaluate`.
- bins: `action_language.bins` from YAML to effect. Every file whose code names `bins`; nothing is run for it.

"entered" are all modules in which a function ran during the trip, locks and progress included; "*" marks those in which
a function took or returned the thing itself (bytes, an episode, step, action, element, sentence, array, tensor or
table): the files to open to follow a record. A second count leaves out
`LOWEST_LAYERS`, the helpers below the data types. "visits" are entries from another module, so that a module entered,
left and entered again counts twice. What runs during an import, and the building of the argument parser, count as
nothing.
"""

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = "vlm_agent"
MOST_LOOSE_FILES = 8
LOWEST_LAYERS = {f"{PACKAGE}/{name}.py" for name in ("console", "errors", "files", "geometry", "jobs", "settings")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--json", action="store_true", help="print the numbers and lists as JSON")
    parser.add_argument("--no-trips", action="store_true", help="only what needs no run")
    parser.add_argument("--trace-in", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    checkout = options.checkout.resolve()
    if options.trace_in is not None:
        _take_trips(checkout, options.trace_in)
        return 0
    result: dict[str, Any] = {
        "loose_files": loose_files(checkout),
        "functions": annotated_functions(checkout),
        "type_errors": type_errors(checkout),
        "trips": {"bins": {"data": files_naming(checkout, "bins")}},
    }
    if not options.no_trips:
        result["trips"] |= _trips(checkout)
    print(json.dumps(result, indent=2) if options.json else _described(result))
    return 0


def loose_files(checkout: Path) -> dict[str, int]:
    """Modules beside `__init__.py`, by package, most first."""
    counts = Counter(
        str(path.parent.relative_to(checkout)) for path in _modules(checkout) if path.name != "__init__.py"
    )
    return dict(counts.most_common())


def annotated_functions(checkout: Path) -> dict[str, int]:
    """`all` functions, and those whose parameters (but self and cls) and result are all annotated."""
    counts = {"all": 0, "annotated": 0}
    for path in _modules(checkout):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                counts["all"] += 1
                counts["annotated"] += _is_annotated(node)
    return counts


def _is_annotated(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    parameters = [argument for argument in named if argument is not None and argument.arg not in ("self", "cls")]
    return all(parameter.annotation for parameter in parameters) and (
        function.returns is not None or function.name == "__init__"
    )


def type_errors(checkout: Path) -> int:
    """Errors of mypy over the whole package, leniently and alike for every commit."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "mypy.ini")
        config.write_text("[mypy]\npython_version = 3.11\nignore_missing_imports = True\nplugins = pydantic.mypy\n")
        command = [sys.executable, "-m", "mypy", "--config-file", str(config), "--cache-dir", folder, PACKAGE]
        lines = subprocess.run(command, cwd=checkout, capture_output=True, text=True).stdout.splitlines()
    if not lines:
        raise SystemExit("mypy printed nothing; is it installed?")
    return sum(": error: " in line for line in lines)


def files_naming(checkout: Path, name: str) -> list[str]:
    """Modules whose code has `name` as a variable, parameter, attribute or keyword."""
    return sorted(str(path.relative_to(checkout)) for path in _modules(checkout) if name in set(_identifiers(path)))


def _identifiers(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for field in ("id", "arg", "attr"):
            if isinstance(value := getattr(node, field, None), str):
                yield value


def _modules(checkout: Path) -> list[Path]:
    return sorted(Path(checkout, PACKAGE).rglob("*.py"))


def _trips(checkout: Path) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, str(checkout), "--trace-in", folder]
        ran = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
        if ran.returncode:
            raise SystemExit(f"the commands failed in {checkout}:\n{ran.stdout[-2000:]}\n{ran.stderr[-4000:]}")
        return json.loads(Path(folder, "trips.json").read_text())


class Trace:
    """The modules entered while it is on, in order of first entry."""

    def __init__(self, package: Path):
        self._package = str(package) + os.sep
        self._names: dict[str, str | None] = {}
        self._last: str | None = None
        self._importing: list[FrameType] = []
        self.entered: dict[str, int] = {}
        self.data: dict[str, int] = {}

    def note(self, frame: FrameType, event: str, value: object) -> None:
        name = self.module_of(frame)
        if name is None or self._is_import(frame, event) or _is_parser_building(frame):
            return
        if event == "call":
            self.entered[name] = self.entered.get(name, 0) + (name != self._last)
            code = frame.f_code
            parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            carries = any(_is_data(frame.f_locals.get(parameter)) for parameter in parameters)
            self._last = name
        else:
            carries = _is_data(value)
        if carries:
            self.data[name] = self.data.get(name, 0) + 1

    def _is_import(self, frame: FrameType, event: str) -> bool:
        """Whether an import of the package is going on."""
        if not self._importing and frame.f_code.co_name == "<module>":
            self._importing.append(frame)
        if self._importing and self._importing[0] is frame and event == "return":
            self._importing.clear()
            return True
        return bool(self._importing)

    def module_of(self, frame: FrameType) -> str | None:
        path = frame.f_code.co_filename
        if path not in self._names:
            inside = path.startswith(self._package)
            self._names[path] = f"{PACKAGE}/{path[len(self._package) :]}" if inside else None
        return self._names[path]


def _is_parser_building(frame: FrameType) -> bool:
    return frame.f_code.co_name in ("add", "make_parser") and f"{os.sep}cli{os.sep}" in frame.f_code.co_filename


_NOUNS = {"Action", "UiElement", "Step", "Screen", "Episode", "EpisodeStep", "BadRecord", "Sentence"}
_NOUNS |= {"Prediction", "StepTable", "JudgedSteps"}
_ARRAYS = {"ndarray", "Tensor", "Table", "RecordBatch", "Image", "BatchFeature", "BatchEncoding"}


def _is_data(value: object, depth: int = 2) -> bool:
    kind = type(value)
    if kind is bytes or kind is memoryview:
        return True
    if kind.__name__ in _NOUNS or kind.__name__ in _ARRAYS:
        return not kind.__module__.startswith("rich.")  # its Table is printed
    if depth and isinstance(value, list | tuple) and value:
        return _is_data(value[0], depth - 1)
    if depth and isinstance(value, dict) and value:
        return any(_is_data(item, depth - 1) for item in list(value.values())[:8])
    return False


def _take_trips(checkout: Path, folder: Path) -> None:
    from vlm_agent.cli import main as command  # type: ignore[import-not-found]

    aitw, shards, run = folder / "aitw", folder / "shards", folder / "run"
    _succeed(command, "simulate", "--output", aitw, "--episodes", 12, "--workers", 1)
    record = Trace(checkout / PACKAGE)
    with _Profiled(record.note):
        convert = ("convert", "--input", aitw, "--output", shards, "--splits", aitw / "splits.json", "--workers", 1)
        _succeed(command, *convert)
    train = ("train", "--config", checkout / "recipes" / "phone_vlm_tiny_lora.yaml", "--output", run)
    train += ("--data.shards", shards, "--training.steps", 1, "--training.bf16", "false")
    with _Profiled(_only_within(record, _is_fetch)):
        _succeed(command, *train)
    load, judge = Trace(checkout / PACKAGE), Trace(checkout / PACKAGE)
    evaluate = ("evaluate", "--checkpoint", run, "--shards", shards, "--split", "train", "--limit", 1)
    with _Profiled(_only_within(load, _loads), _only_within(judge, _judges)):
        _succeed(command, *evaluate, "--no-controls", "--output", folder / "evaluation")
    trips = {"record": record, "load": load, "judge": judge}
    lists = {name: {"entered": trace.entered, "data": list(trace.data)} for name, trace in trips.items()}
    Path(folder, "trips.json").write_text(json.dumps(lists))


def _succeed(command: Callable[[list[str]], int], *words: object) -> None:
    if status := command([str(word) for word in words]):
        raise SystemExit(f"{words[0]} ended with status {status}")


class _Profiled:
    def __init__(self, *notes: Callable[[FrameType, str, object], None]):
        self._notes = notes

    def __enter__(self) -> None:
        def profile(frame: FrameType, event: str, value: object) -> None:
            if event in ("call", "return"):
                for note in self._notes:
                    note(frame, event, value)

        threading.setprofile(profile)
        sys.setprofile(profile)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def _only_within(trace: Trace, is_door: Callable[[FrameType], bool]) -> Callable[[FrameType, str, object], None]:
    """Notes what runs below a frame that `is_door`, itself included."""
    inside: list[FrameType] = []

    def note(frame: FrameType, event: str, value: object) -> None:
        if not inside and event == "call" and is_door(frame):
            inside.append(frame)
        if inside:
            trace.note(frame, event, value)
        if inside and inside[0] is frame and event == "return":
            inside.clear()

    return note


def _is_fetch(frame: FrameType) -> bool:
    """PyTorch's loader takes rows from the data set and collates them."""
    return frame.f_code.co_name == "fetch" and Path(frame.f_code.co_filename).parts[-2:] == ("_utils", "fetch.py")


def _loads(frame: FrameType) -> bool:
    """Whether this loads an agent, in this checkout or in those before `agents/loading.py`."""
    path = frame.f_code.co_filename
    return frame.f_code.co_name in ("load", "load_agent", "from_run") and (
        f"{PACKAGE}{os.sep}agents{os.sep}" in path or Path(path).parts[-2:] == ("evaluation", "sources.py")
    )


def _judges(frame: FrameType) -> bool:
    return frame.f_code.co_name == "judge_steps"


def _described(result: dict[str, Any]) -> str:
    lines = [f"Loose files (packages with more than {MOST_LOOSE_FILES}, and the number of packages):"]
    crowded = {name: count for name, count in result["loose_files"].items() if count > MOST_LOOSE_FILES}
    lines += [f"  {count:4}  {name}" for name, count in crowded.items()]
    lines.append(f"  {len(result['loose_files']):4}  packages, {sum(result['loose_files'].values())} modules")
    functions = result["functions"]
    share = 100 * functions["annotated"] / functions["all"]
    lines.append(f"Functions annotated in full: {functions['annotated']} of {functions['all']} ({share:.1f} %)")
    lines.append(f"Type errors (mypy): {result['type_errors']}")
    for trip, modules in result["trips"].items():
        counted = f"{len(modules['data'])} modules handle it"
        if "entered" in modules:
            lowest = sorted(Path(name).name for name in LOWEST_LAYERS.intersection(modules["data"]))
            if lowest:
                counted += f" ({len(modules['data']) - len(lowest)} without {' and '.join(lowest)})"
            counted += f", {len(modules['entered'])} are entered"
            if trip == "load":
                counted += f" in {sum(modules['entered'].values())} visits"
        lines += [f"Trip {trip}: {counted}"]
        lines += [
            f"  {'*' if name in modules['data'] else ' '} {name}" for name in modules.get("entered", modules["data"])
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
