"""Correlation of offline scores with task success on simulated phones, over the checkpoints of runs.

    python -m studies.smartphone_assistant.online --runs runs/demo/agent RUN --shards runs/demo/shards

Each checkpoint of the runs (`training.keep_checkpoints` limits their number) is evaluated offline on the recorded test
episodes (partial and complete match, official and strict) and online on tasks of simulated phones. With the seed of the
shards, these are the same goals on the same phones. Results are cached in --output, and the figures are added to
--records. Prints a table; the last line of output is JSON, with Pearson's and Spearman's correlation of each offline
score with the success rate.
"""

import argparse
import json
import sys
from io import StringIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from helpers.evaluation.correlation import correlate_success
from rich.console import Console
from rich.table import Table

from studies.ablation.records import Records
from vlm_agent.agents.vlm import VlmSettings
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.offline.run import AGENT, evaluate
from vlm_agent.evaluation.online import evaluate_online
from vlm_agent.models.run_layout import CHECKPOINTS
from vlm_agent.training.run_folder.layout import FINISHED

ROOT = Path(__file__).resolve().parents[2]
SHARES = ("partial_match", "complete_match")
SCORERS = ("official", "strict")


def main() -> None:
    options = parse()
    records, rows = Records(options.records), []
    for run in options.runs:
        for checkpoint, folder in checkpoints_of(run).items():
            name = f"{run.name}/{checkpoint}"
            rows.append({"checkpoint": name, **scores(folder, name, options)})
            print(json.dumps(rows[-1]), flush=True)
    show(rows)
    offline = [{key: value for key, value in row.items() if key in (*names(), "success")} for row in rows]
    figures = {"checkpoints": rows, "correlation": correlate_success(offline)}
    key = f"success of {len(rows)} checkpoints, {options.tasks} tasks, {options.limit} episodes, seed {options.seed}"
    records.add(key, figures)
    print(json.dumps({"run": key, **figures}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, nargs="+", required=True, metavar="RUN", help="finished runs")
    parser.add_argument("--shards", type=Path, required=True, help="the shards of the offline evaluation")
    parser.add_argument("--tasks", type=int, default=100, metavar="N", help="online tasks (default 100)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the tasks (default 0)")
    parser.add_argument("--limit", type=int, default=160, metavar="N", help="recorded episodes (default 160)")
    parser.add_argument("--workers", type=int, default=1, metavar="W", help="phones at once (default 1)")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "online", metavar="DIR")
    kept = Path(__file__).with_name("records.jsonl")
    parser.add_argument("--records", type=Path, default=kept, metavar="FILE", help="default: %(default)s")
    return parser.parse_args()


def checkpoints_of(run: Path) -> dict[str, Path]:
    """Name → folder of each checkpoint, ordered by step; then the finished model, unless it is one of them."""
    found = {path.name: path for path in (run / CHECKPOINTS).glob("checkpoint-*[0-9]")}
    ordered = sorted(found, key=lambda name: int(name.rpartition("-")[2]))
    last = json.loads((run / FINISHED).read_text(encoding="utf-8"))["figures"]["steps"]
    finished = {} if f"checkpoint-{last}" in found else {"finished": run}
    return {name: found[name] for name in ordered} | finished


def scores(checkpoint: Path, name: str, options: argparse.Namespace) -> dict[str, float]:
    settings, quiet = VlmSettings(run=str(checkpoint)), Console(file=StringIO())
    benchmark = Benchmark(shards=options.shards, split="test", limit=options.limit)
    offline = evaluate(settings, benchmark, options.output / "offline" / name, quiet, controls=False)[AGENT]
    online = evaluate_online(
        settings, options.output / "online" / name, quiet, options.tasks, options.seed, False, options.workers
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
