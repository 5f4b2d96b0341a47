"""Verdicts per second of the AITW matcher against one call per step, and the time to score a whole test set.

    python -m benchmarks.matcher [--quick] [--jax] [--test-set FILE]

First part: verdicts per second on one core with 40 boxes per screen, random actions in AITW's proportions and answers
of an agent of medium accuracy. `actions_match` on arrays is compared with one call per step, the pattern of published
evaluations (`matching/one_step.py`), on the same steps; all verdicts must be equal. `hard`: only taps on different
elements, whose verdict always depends on the boxes. `lean_loop`: the fastest loop over single steps that was found.
`--jax`: the published pattern in JAX, if it is installed. Times are processor time, the best of several runs.

Second part: a random predictions file of the size of AITW's test set (570 k steps, 28 elements per screen) is read and
scored by the official and the strict scorer, with intervals, in a new process on one core. `seconds` is wall time,
`cpu_seconds` processor time, and `read_seconds` the time of reading alone. `--test-set` names a file that is used if it
exists and written otherwise. The last line of output is JSON.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.matcher.made_steps import BOXES, make_arrays, make_hard_arrays
from benchmarks.matcher.one_step import match_step, match_step_lean
from benchmarks.matcher.test_set import write_test_set
from vlm_agent.evaluation.scoring.aitw_matcher import actions_match

TEST_SET_STEPS, QUICK_STEPS = 570_000, 57_000
_KEYS = ("touch_1", "lift_1", "type_1", "touch_2", "lift_2", "type_2", "boxes")

_SCORE = """
import json, resource, sys, time
from pathlib import Path
from vlm_agent.evaluation.scoring.metrics import score
from vlm_agent.evaluation.scoring.steps import step_tables
path = Path(sys.argv[1])
start, processor = time.perf_counter(), time.process_time()
scores = score(path)
seconds, processor = time.perf_counter() - start, time.process_time() - processor
steps = scores["official"]["overall"]["steps"]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
for table in step_tables(path):
    pass
print(json.dumps({
    "steps": steps,
    "seconds": round(seconds, 2),
    "cpu_seconds": round(processor, 2),
    "read_seconds": round(time.perf_counter() - start, 2),
    "peak_mb": round(peak / 1e3),
    "partial_match": {name: round(scores[name]["overall"]["partial_match"], 2) for name in ("official", "strict")},
}))
"""


def main() -> None:
    options = parse()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    figures = {"boxes": BOXES, **measure(make_arrays, options), "hard": measure(make_hard_arrays, options)}
    if options.jax:
        figures["jax"] = measure_jax(make_arrays(300, seed=0))
    figures["test_set"] = score_test_set(options)
    print(json.dumps(figures))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer runs, and a tenth of the test set")
    parser.add_argument("--jax", action="store_true", help="also measure JAX, if it is installed")
    parser.add_argument(
        "--test-set", type=Path, metavar="FILE", help="the predictions file: used if it exists, else written"
    )
    return parser.parse_args()


def measure(make: Callable, options: argparse.Namespace) -> dict:
    few, many = make(1000 if options.quick else 4000, seed=0), make(100_000, seed=1)
    rounds = 3 if options.quick else 7
    official, expected = rate(lambda: loop(few, lambda *step: match_step(np, *step)), len(few["type_1"]), 3)
    lean, lean_verdicts = rate(lambda: loop(few, match_step_lean), len(few["type_1"]), rounds)
    ours, _ = rate(lambda: actions_match(**many), len(many["type_1"]), 3 * rounds)
    verdicts = actions_match(**few)
    if not (np.array_equal(verdicts, expected) and np.array_equal(verdicts, lean_verdicts)):
        raise SystemExit("the verdicts differ, so the rates cannot be compared")
    return {
        "verdicts_per_second": round(ours),
        "one_call_a_step": round(official),
        "ratio": round(ours / official),
        "lean_loop": round(lean),
        "ratio_to_lean_loop": round(ours / lean),
        "share_right": round(float(verdicts.mean()), 3),
    }


def rate(run: Callable[[], np.ndarray], steps: int, rounds: int) -> tuple[float, np.ndarray]:
    """Steps per second of processor time in the best of `rounds`, and the result of `run`."""
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        result = run()
        seconds.append(time.process_time() - start)
    return steps / min(seconds), result


def loop(arrays: dict, match: Callable) -> np.ndarray:
    return np.array([match(*step) for step in zip(*(arrays[key] for key in _KEYS), strict=True)], bool)


def measure_jax(few: dict) -> dict:
    """Calls per second, eager and jitted, after a warm-up; wall time, because JAX has its own threads."""
    import jax

    jitted = jax.jit(lambda *step: match_step(jax.numpy, *step))
    calls = {"eager": lambda *step: match_step(jax.numpy, *step), "jitted": jitted}
    rates = {}
    for name, match in calls.items():
        loop({key: array[:2] for key, array in few.items()}, match)
        start = time.perf_counter()
        loop(few, match)
        rates[name] = round(len(few["type_1"]) / (time.perf_counter() - start))
    return rates


def score_test_set(options: argparse.Namespace) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        path = options.test_set or Path(folder) / "predictions.parquet"
        if not path.is_file():
            write_test_set(path, QUICK_STEPS if options.quick else TEST_SET_STEPS)
        command = [sys.executable, "-c", _SCORE, str(path)]
        found = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | _ONE_THREAD)
        return {"file_mb": round(path.stat().st_size / 1e6), **json.loads(found.stdout)}


_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

if __name__ == "__main__":
    main()
