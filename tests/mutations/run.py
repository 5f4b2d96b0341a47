"""Mutates modules one place at a time and runs the tests that should notice.

    python tests/mutations/run.py --seed 0 --count 200 @tests/mutations/modules.txt
    python tests/mutations/run.py --known                    # the list in known.yaml
    python tests/mutations/run.py --again [MODULE …]         # survivors once more, with the tests as they are now

MODULE is a path such as `vlm_agent/sentences/packing.py`, a folder, or @FILE with one a line. The mutations are drawn
with the seed, spread evenly over the modules. Each one is applied to a copy of the repository; the mirrored test files
run until the first failure, and for survivors all test files that import the module. A mutation that hangs counts as
noticed. Results are appended to --output/results.jsonl, so the same command resumes; `summary.md` lists every mutation
with the test that noticed it. Slow tests, and tests that fail without a mutation, are not run. Mutations of
equivalent.yaml, which change nothing that a test could see, are listed and not run.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutations import forks
from mutations.killers import importing, mirrored
from mutations.operators import Mutation, compiles, mutations

ROOT = Path(__file__).resolve().parents[2]
STAGES = ("mirrored", "importing")
TIME_LIMIT = 900
"""Seconds for one run of test files. Generous: a busy machine is not a mutation."""


def main() -> int:
    options = _options()
    chosen = _known() if options.known else _drawn(options.modules, options.seed, options.count)
    reasons = equivalents()
    judged = [mutation for mutation in chosen if mutation.id not in reasons]
    options.output.mkdir(parents=True, exist_ok=True)
    log = Log((options.output / "results.jsonl").resolve())
    tests = Tests(_copied(options.output / "copy"))
    for stage in STAGES:
        left = log.left(judged, stage, options.again)
        begin = time.monotonic()
        for number, mutation in enumerate(left):
            result = {"id": mutation.id, "change": mutation.in_words, "again": options.again}
            result |= tests.judged(mutation, stage)
            log.append(result)
            minutes = (time.monotonic() - begin) / 60 / (number + 1) * (len(left) - number - 1)
            print(
                f"{stage} {number + 1}/{len(left)}  {result['killed_by'] or 'SURVIVED'}  "
                f"{mutation.path}:{mutation.line}  {mutation.in_words}  ({minutes:.0f} min left)",
                flush=True,
            )
    summary = log.summary(judged, {one: reasons[one.id] for one in chosen if one.id in reasons})
    (log.path.parent / "summary.md").write_text("\n".join(summary) + "\n", encoding="utf-8")
    print(*summary[2:5], sep="\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, fromfile_prefix_chars="@"
    )
    parser.add_argument("modules", nargs="*", metavar="MODULE", default=["vlm_agent"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200, help="mutations in all (default 200)")
    parser.add_argument("--known", action="store_true", help="the mutations of known.yaml instead")
    parser.add_argument("--again", action="store_true", help="run the tests again for the survivors in --output")
    parser.add_argument("--output", type=Path, default=Path("runs/mutations"))
    return parser.parse_args()


def _drawn(modules: list[str], seed: int, count: int) -> list[Mutation]:
    """`count` mutations, the same number of each module as far as it has so many."""
    files = sorted({file.relative_to(ROOT).as_posix() for name in modules for file in _files(ROOT / name)})
    found = {file: mutations(ROOT, file) for file in files}
    # One generator a file: a change of one module leaves the mutations of the others as they are.
    pools = [random.Random(f"{seed}/{file}").sample(those, len(those)) for file, those in found.items()]
    random.Random(seed).shuffle(pools)
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


def equivalents() -> dict[str, str]:
    """Id → reason of the mutations in equivalent.yaml. Raises ValueError where the code has changed: adapt the file."""
    found = {}
    for entry in yaml.safe_load((Path(__file__).parent / "equivalent.yaml").read_text(encoding="utf-8")):
        lines = (ROOT / entry["file"]).read_text(encoding="utf-8").splitlines()
        ids = [
            one.id
            for one in mutations(ROOT, entry["file"])
            if one.in_words == entry["change"] and lines[one.line - 1].strip() == entry["line"]
        ]
        if not ids:
            raise ValueError(f"equivalent.yaml: {entry['file']} has no {entry['change']!r} in {entry['line']!r}")
        found[ids[0]] = entry["why"]
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


class Tests:
    """The test files of a copy of the repository."""

    def __init__(self, copy: Path) -> None:
        self._copy = copy
        self._fail_anyway: dict[str, bool] = {}
        forks.imported(copy)

    def judged(self, mutation: Mutation, stage: str) -> dict:
        """Which test of `stage` noticed it: `killed_by`, None if none did; `error`: its first line; `seconds`."""
        begin = time.monotonic()
        near = mirrored(self._copy, mutation.path)
        tests = near if stage == "mirrored" else [x for x in importing(self._copy, mutation.path) if x not in near]
        failed = self._failed(mutation, tests) if tests else None
        killer, error = failed or (None, "")
        return {"stage": stage, "killed_by": killer, "error": error, "seconds": round(time.monotonic() - begin, 1)}

    def _failed(self, mutation: Mutation, tests: list[str]) -> tuple[str, str] | None:
        file = self._copy / mutation.path
        source, times = file.read_text(encoding="utf-8"), file.stat()
        while True:
            skipped = tuple(f"--deselect={test}" for test, fails in self._fail_anyway.items() if fails)
            try:
                file.write_text(mutation.applied(source), encoding="utf-8")
                failures = forks.failures(tests, TIME_LIMIT, ("-x", *skipped))
            finally:
                file.write_text(source, encoding="utf-8")
                os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # its compiled file stays valid
            if not failures or "::" not in failures[0][0] or not self._fails_anyway(failures[0][0]):
                return failures[0] if failures else None

    def _fails_anyway(self, test: str) -> bool:
        if test not in self._fail_anyway:
            self._fail_anyway[test] = bool(forks.failures([test], TIME_LIMIT))
        return self._fail_anyway[test]


class Log:
    """The results so far, one JSON record a line: one a mutation and stage, and more of runs with --again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self._results = [json.loads(line) for line in lines]

    def append(self, result: dict) -> None:
        self._results.append(result)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result, ensure_ascii=False) + "\n")

    def left(self, chosen: list[Mutation], stage: str, again: bool) -> list[Mutation]:
        """The mutations that no test has noticed and whose run of `stage` is missing. With `again`: those that no test
        of `stage`, or of an earlier one, has noticed."""
        stages = STAGES[: STAGES.index(stage) + 1] if again else STAGES
        noticed = {one["id"] for one in self._results if one["killed_by"] and one["stage"] in stages}
        done = {one["id"] for one in self._results if one["stage"] == stage and not again}
        return [mutation for mutation in chosen if mutation.id not in noticed | done]

    def summary(self, judged: list[Mutation], equivalent: dict[Mutation, str]) -> list[str]:
        """A page in Markdown."""
        ids = {mutation.id for mutation in judged}
        results = [one for one in self._results if one["id"] in ids]
        lines = [
            "# Mutations",
            "",
            f"{len(ids)} mutations. Noticed at first: {_rates(ids, [one for one in results if not one['again']])}.",
            f"With later tests: {_rates(ids, results)}.",
            f"{len(equivalent)} more change nothing that a test could see.",
            "",
            "| place | change | noticed by |",
            "|---|---|---|",
        ]
        # The last one that noticed it, if any did: a later run of mirrored test files alone may not notice it.
        last = {one["id"]: one for one in sorted(results, key=lambda one: one["killed_by"] is not None)}.values()
        for result in sorted(last, key=lambda one: (one["killed_by"] is not None, one["id"])):
            place = ":".join(result["id"].split(":")[:2])
            change = result["change"].replace("|", "\\|")
            lines.append(f"| {place} | `{change}` | {result['killed_by'] or '**survived**'} |")
        lines += ["", "| place | change | why no test can notice it |", "|---|---|---|"]
        lines += [f"| {one.path}:{one.line} | `{one.in_words}` | {why} |" for one, why in equivalent.items()]
        return lines


def _rates(ids: set[str], results: list[dict]) -> str:
    near = {one["id"] for one in results if one["killed_by"] and one["stage"] == "mirrored"}
    noticed = {one["id"] for one in results if one["killed_by"]}
    return (
        f"{len(near)} ({len(near) / len(ids):.1%}) by mirrored test files, "
        f"{len(noticed)} ({len(noticed) / len(ids):.1%}) with all that import"
    )


if __name__ == "__main__":
    raise SystemExit(main())
