"""Mutates modules one place at a time and runs the tests that should notice.

    python tests/mutations/run.py --seed 0 --count 200 --output runs/mutations [MODULE …]
    python tests/mutations/run.py --known --output runs/mutations      # the list in known.yaml

MODULE is a path such as `vlm_agent/sentences/packing.py` or a folder. The mutations are drawn with the seed, spread
evenly over the modules. Each one is applied to a copy of the repository; the mirrored test files run until the first
failure, and for survivors all test files that import the module. A mutation that hangs is killed after --timeout
seconds and counts as noticed. Results are appended to --output/results.jsonl, so the same command resumes; `summary.md`
lists every mutation with the test that noticed it. Slow tests are not run.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutations.killers import importing, mirrored
from mutations.operators import Mutation, compiles, mutations

ROOT = Path(__file__).resolve().parents[2]
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.M)


def main() -> int:
    options = _options()
    chosen = _known() if options.known else _drawn(options.modules, options.seed, options.count)
    options.output.mkdir(parents=True, exist_ok=True)
    log = options.output / "results.jsonl"
    results = {line["id"]: line for line in map(json.loads, log.read_text().splitlines())} if log.is_file() else {}
    copy = _copied(options.output / "copy")
    begin, left = time.monotonic(), [one for one in chosen if one.id not in results]
    for number, mutation in enumerate(left):
        result = {"id": mutation.id, "change": mutation.in_words, **_judged(mutation, copy, options.timeout)}
        results[mutation.id] = result
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result, ensure_ascii=False) + "\n")
        minutes = (time.monotonic() - begin) / 60 / (number + 1) * (len(left) - number - 1)
        print(
            f"{number + 1}/{len(left)}  {result['killed_by'] or 'SURVIVED'}  {mutation.path}:{mutation.line}  "
            f"{mutation.in_words}  ({minutes:.0f} min left)",
            flush=True,
        )
    lines = _summary([results[one.id] for one in chosen])
    (options.output / "summary.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines[:6]))
    print(json.dumps({key: value for key, value in _counts([results[one.id] for one in chosen]).items()}))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE", default=["vlm_agent"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200, help="mutations in all (default 200)")
    parser.add_argument("--known", action="store_true", help="the mutations of known.yaml instead")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one run of test files (default 300)")
    parser.add_argument("--output", type=Path, default=Path("runs/mutations"))
    return parser.parse_args()


def _drawn(modules: list[str], seed: int, count: int) -> list[Mutation]:
    """`count` mutations, the same number of each module as far as it has so many."""
    files = sorted({file.relative_to(ROOT).as_posix() for name in modules for file in _files(ROOT / name)})
    rng = random.Random(seed)
    pools = [rng.sample(found, len(found)) for file in files if (found := mutations(ROOT, file))]
    rng.shuffle(pools)
    drawn: list[Mutation] = []
    while len(drawn) < count and any(pools):
        for pool in pools:
            mutation = pool.pop() if pool and len(drawn) < count else None
            if mutation is not None and compiles(mutation, (ROOT / mutation.path).read_text(encoding="utf-8")):
                drawn.append(mutation)
    return drawn


def _files(place: Path) -> list[Path]:
    if not place.exists():
        raise SystemExit(f"{place} does not exist; name modules relative to the repository")
    return [place] if place.is_file() else [file for file in place.rglob("*.py") if file.name != "__init__.py"]


def _known() -> list[Mutation]:
    """The mutations that once survived. Raises ValueError where the code has changed: adapt known.yaml."""
    found = []
    for entry in yaml.safe_load((Path(__file__).parent / "known.yaml").read_text(encoding="utf-8")):
        source = (ROOT / entry["file"]).read_text(encoding="utf-8")
        if source.count(entry["before"]) != 1:
            raise ValueError(
                f"known.yaml: {entry['before']!r} is {source.count(entry['before'])} times in {entry['file']}"
            )
        start = source.index(entry["before"])
        line = source[:start].count("\n") + 1
        found.append(
            Mutation(entry["file"], line, start, start + len(entry["before"]), entry["before"], entry["after"])
        )
    return found


def _copied(target: Path) -> Path:
    """A copy of the tracked files, so that an interrupted run leaves no mutation in the repository."""
    shutil.rmtree(target, ignore_errors=True)
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)
    shared = ROOT.parent / "shared"
    if shared.is_dir() and not (link := target.parent / "shared").exists():
        link.symlink_to(shared)
    return target.resolve()


def _judged(mutation: Mutation, copy: Path, timeout: float) -> dict:
    """Which test noticed it: `killed_by`, None if none did; `by`: mirrored, importing or none; `seconds`."""
    file, begin = copy / mutation.path, time.monotonic()
    source = (ROOT / mutation.path).read_text(encoding="utf-8")
    near = mirrored(ROOT, mutation.path)
    far = [name for name in importing(ROOT, mutation.path) if name not in near]
    killers: dict[str, str] = {}
    try:
        file.write_text(mutation.applied(source), encoding="utf-8")
        for by, tests in (("mirrored", near), ("importing", far)):
            killer = _killer(tests, copy, timeout) if tests and not killers else None
            if killer is not None:
                killers[by] = killer
    finally:
        file.write_text(source, encoding="utf-8")
    by, killer = next(iter(killers.items()), ("none", None))
    return {"killed_by": killer, "by": by, "seconds": round(time.monotonic() - begin, 1)}


def _killer(tests: list[str], copy: Path, timeout: float) -> str | None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        result = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return "time limit"
    if result.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):  # all of them may be slow
        return None
    failed = _FAILED.search(result.stdout)
    return failed[1] if failed else f"pytest ended with {result.returncode}"


def _counts(results: list[dict]) -> dict[str, int]:
    return {
        "mutations": len(results),
        "mirrored": sum(result["by"] == "mirrored" for result in results),
        "importing": sum(result["by"] == "importing" for result in results),
        "survived": sum(result["killed_by"] is None for result in results),
    }


def _summary(results: list[dict]) -> list[str]:
    counts = _counts(results)
    count = max(1, counts["mutations"])
    noticed = counts["mirrored"] + counts["importing"]
    lines = [
        "# Mutations",
        "",
        f"{counts['mutations']} mutations; noticed by mirrored test files {counts['mirrored']} "
        f"({counts['mirrored'] / count:.0%}), with all test files that import the module {noticed} "
        f"({noticed / count:.0%}).",
        "",
        "| place | change | noticed by |",
        "|---|---|---|",
    ]
    for result in sorted(results, key=lambda one: (one["killed_by"] is not None, one["id"])):
        place = ":".join(result["id"].split(":")[:2])
        change = result["change"].replace("|", "\\|")
        lines.append(f"| {place} | `{change}` | {result['killed_by'] or '**survived**'} |")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
