"""Does the offline score tell who does tasks on a phone? The checkpoints of one run, scored both ways.

    python tests/benchmarks/online.py --run runs/demo/agent --shards runs/demo/shards [--checkpoints DIR …]

Every checkpoint that the run has kept (three at most: it keeps the newest and the best), the finished model, and those
named, copies made while it trained, say, answer the recorded test episodes (partial and complete match, official and
strict) and do the tasks of simulated phones: with the seed that the shards were simulated with, the same goals on the
same phones. Results are kept in --output, and made again when that is removed. Prints a table, and last one line of
JSON with Pearson's and Spearman's correlation of each offline score with the success.
"""

import argparse
import json
import os
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.table import Table

from vlm_agent.evaluation.correlation import correlate_success
from vlm_agent.evaluation.offline import AGENT, Benchmark, evaluate
from vlm_agent.evaluation.online import evaluate_online
from vlm_agent.evaluation.sources import Checkpoint
from vlm_agent.models.build import BASE_FOLDER, MODEL_FOLDER, RECIPE_FILE, TOKENIZER_FOLDER
from vlm_agent.training.run_folder import FINISHED

ROOT = Path(__file__).resolve().parents[2]
SHARES = ("partial_match", "complete_match")
SCORERS = ("official", "strict")


def main() -> None:
    options = parse()
    rows = []
    for name, weights in checkpoints_of(options).items():
        with tempfile.TemporaryDirectory() as folder:
            run = as_run(options.run, weights, Path(folder))
            rows.append({"checkpoint": name, **scores(run, name, options)})
        print(json.dumps(rows[-1]), flush=True)
    show(rows)
    offline = [{key: value for key, value in row.items() if key in (*names(), "success")} for row in rows]
    figures = {"run": str(options.run), "tasks": options.tasks, "seed": options.seed, "checkpoints": rows}
    print(json.dumps(figures | {"correlation": correlate_success(offline)}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="a finished run")
    parser.add_argument("--shards", type=Path, required=True, help="what it is scored on offline")
    parser.add_argument("--checkpoints", type=Path, nargs="*", default=[], help="more checkpoints of the same run")
    parser.add_argument("--tasks", type=int, default=100, metavar="N", help="on phones (default 100)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the tasks (default 0)")
    parser.add_argument("--limit", type=int, default=160, metavar="N", help="recorded episodes (default 160)")
    parser.add_argument("--workers", type=int, default=1, metavar="W", help="phones at once (default 1)")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "online", metavar="DIR")
    return parser.parse_args()


def checkpoints_of(options: argparse.Namespace) -> dict[str, Path]:
    """Name → folder of weights: in the order of their steps, the finished model last where it is none of them."""
    found = {
        path.name: path for path in [*(options.run / "checkpoints").glob("checkpoint-*[0-9]"), *options.checkpoints]
    }
    ordered = sorted(found, key=lambda name: int(name.rpartition("-")[2]))
    last = json.loads((options.run / FINISHED).read_text(encoding="utf-8"))["figures"]["steps"]
    finished = {} if f"checkpoint-{last}" in found else {"finished": options.run / MODEL_FOLDER}
    return {name: found[name] for name in ordered} | finished


def as_run(run: Path, weights: Path, folder: Path) -> Path:
    """A folder that reads as the run would, had it ended with these weights."""
    parts = {name: run / name for name in (RECIPE_FILE, TOKENIZER_FOLDER, BASE_FOLDER)} | {MODEL_FOLDER: weights}
    for name, path in parts.items():
        if path.exists():
            os.symlink(path.resolve(), folder / name)
    return folder


def scores(run: Path, name: str, options: argparse.Namespace) -> dict[str, float]:
    source, quiet = Checkpoint(run), Console(file=StringIO())
    benchmark = Benchmark(options.shards, "test", limit=options.limit)
    offline = evaluate(source, benchmark, options.output / "offline" / name, quiet, controls=False)[AGENT]
    online = evaluate_online(
        source, options.output / "online" / name, quiet, options.tasks, options.seed, False, options.workers
    )["runs"][AGENT]["overall"]
    row = {f"{scorer}_{share}": offline[scorer]["overall"][share] for scorer in SCORERS for share in SHARES}
    return row | {"success": online["success"], "interval": online["interval"], "reached": online["reached"]}


def names() -> list[str]:
    return [f"{scorer}_{share}" for scorer in SCORERS for share in SHARES]


def show(rows: list[dict]) -> None:
    table = Table(title="Percent", box=None)
    columns = [*names(), "success", "reached"]
    for column in ("checkpoint", *columns):
        table.add_column(column.replace("_", "\n"), justify="right")
    for row in rows:
        table.add_row(row["checkpoint"], *(f"{row[column]:.1f}" for column in columns))
    Console().print(table)


if __name__ == "__main__":
    main()
