"""Learning curve: the offline score of a run's checkpoints by the number of trajectories.

    make demo
    python -m studies.smartphone_assistant.learning_curve [--run RUN] [--shards SHARDS] --draw curve.svg

Each checkpoint of the run is evaluated on the recorded test episodes. Solid lines are the partial match, official and
strict; dashed lines are the targets. Results are cached in --output. The last line of output is JSON.
"""

import argparse
import json
from io import StringIO
from pathlib import Path

from rich.console import Console

from studies.shipped_base.base_card import polyline, text
from studies.smartphone_assistant.online import checkpoints_of
from vlm_agent.agents.vlm import VlmSettings
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.offline.run import AGENT, evaluate
from vlm_agent.evaluation.scoring.metrics import headline
from vlm_agent.models.run_layout import RECIPE_FILE
from vlm_agent.models.weights.precision import has_bf16
from vlm_agent.recipe.run import read_recipe
from vlm_agent.training.run_folder.layout import FINISHED

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, LINE = 560, 260, 44, 150, 16, 40, 14
COLOURS = {"official": "#1a5fb4", "strict": "#c64600"}
TARGETS = {"official": 75.0, "strict": 60.0}
"""Targets for the demo's agent, in percent."""


def main() -> None:
    options = parse()
    rows_per_step = trajectories_per_step(options.run)
    points = []
    for name, checkpoint in checkpoints_of(options.run).items():
        benchmark = Benchmark(shards=options.shards, split="test", limit=options.limit)
        quiet = Console(file=StringIO())
        agent = VlmSettings(run=str(checkpoint), bf16=has_bf16())
        scores = headline(evaluate(agent, benchmark, options.output / name, quiet, controls=False)[AGENT])
        point = {"trajectories": step_of(checkpoint, options.run) * rows_per_step}
        points.append(point | {scorer: round(scores[scorer]["overall"], 2) for scorer in TARGETS})
        print(json.dumps(points[-1]), flush=True)
    if options.draw is not None:
        options.draw.write_text(draw_curve(points), encoding="utf-8")
    print(json.dumps({"run": str(options.run), "episodes": options.limit, "points": points}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=ROOT / "runs/demo/agent", help="a finished run")
    parser.add_argument("--shards", type=Path, default=ROOT / "runs/demo/shards", help="the shards to evaluate on")
    parser.add_argument("--limit", type=int, default=160, metavar="N", help="recorded episodes (default 160)")
    parser.add_argument("--output", type=Path, default=ROOT / "build/learning_curve", metavar="DIR")
    parser.add_argument("--draw", type=Path, metavar="SVG")
    return parser.parse_args()


def trajectories_per_step(run: Path) -> int:
    """The number of trajectories per optimizer step of a run with one process."""
    training = read_recipe(run / RECIPE_FILE).training
    if training.batch_tokens is not None:
        raise SystemExit(f"{run} filled rows by tokens (batch_tokens); trajectories per step are not constant")
    return (training.batch_size or 1) * training.accumulation


def step_of(checkpoint: Path, run: Path) -> int:
    if checkpoint != run:
        return int(checkpoint.name.rpartition("-")[2])
    return json.loads((run / FINISHED).read_text(encoding="utf-8"))["figures"]["steps"]


def draw_curve(points: list[dict]) -> str:
    """An SVG of the score in percent by the number of trajectories; both axes start at 0."""
    last, base = points[-1]["trajectories"], HEIGHT - BOTTOM
    x = lambda count: LEFT + count / last * (WIDTH - LEFT - RIGHT)  # noqa: E731
    y = lambda percent: base - percent / 100 * (base - TOP)  # noqa: E731
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">']
    parts.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
    for percent in range(0, 101, 25):
        parts.append(f'<path d="M{LEFT} {y(percent):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(text(LEFT - 6, y(percent) + 4, f"{percent}", "end"))
    parts += [text(x(point["trajectories"]), base + 16, str(point["trajectories"]), "middle") for point in points]
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "trajectories", "middle"))
    labels = []
    for scorer, colour in COLOURS.items():
        parts.append(polyline([(x(point["trajectories"]), y(point[scorer])) for point in points], colour))
        target = f'd="M{LEFT} {y(TARGETS[scorer]):.1f}H{WIDTH - RIGHT}" stroke="{colour}" stroke-dasharray="5 4"'
        parts.append(f"<path {target}/>")
        labels.append((y(TARGETS[scorer]), f"{scorer}, aimed at: {TARGETS[scorer]:.0f}", colour))
        labels.append((y(points[-1][scorer]), f"{scorer}: {points[-1][scorer]:.1f}", colour))
    lowest = 0.0
    for height, label, colour in sorted(labels):
        lowest = max(height + 4, lowest + LINE)
        parts.append(text(WIDTH - RIGHT + 6, lowest, label, "start", colour))
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    main()
