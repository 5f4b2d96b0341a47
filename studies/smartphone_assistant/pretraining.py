"""Ablation of pretraining on drawn screens and of the agent's inputs: runs of equal budget, several seeds each.

    make demo                                   # for the shards
    python -m studies.smartphone_assistant.pretraining [--seeds 0 1 2] [--arms "base + LoRA" "from scratch"]

Each arm is trained on the demo's demonstrations for the number of steps of the first arm's recipe, and evaluated on the
demo's test episodes:

- base + LoRA: recipes/phone_vlm_tiny_lora.yaml, on the base of the package;
- from scratch: recipes/llama_vit_tiny.yaml with the network and the action language of the base, all weights trained
  from random initialisation;
- grey screens, no history: base + LoRA under this control, in training and in evaluation.

Results are cached in --output, in one folder per base and budget. Several commands with different arms or seeds can
share the work; a last one summarises all. The figures of a run are also added to --records. Prints a table of means
with Student's 95 % intervals over seeds; the last line of output is JSON.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from rich.console import Console
from rich.table import Table

from shipped_weights.phone_vlm_tiny.settings import read_pretraining
from studies.ablation.records import Records, pruned
from vlm_agent.evaluation.offline.run import AGENT
from vlm_agent.evaluation.scoring.metrics import headline
from vlm_agent.models.run_layout import EMBEDDED
from vlm_agent.models.weights.precision import has_bf16
from vlm_agent.recipe.run import Recipe, read_recipe
from vlm_agent.training.run_folder.layout import FINISHED

ROOT = Path(__file__).resolve().parents[2]
LORA, SCRATCH = ROOT / "recipes/phone_vlm_tiny_lora.yaml", ROOT / "recipes/llama_vit_tiny.yaml"
PRETRAINING = ROOT / "shipped_weights/phone_vlm_tiny/curriculum.yaml"
FIGURES = (("strict", "overall"), ("official", "overall"), ("strict", "memory_goals"), ("official", "memory_goals"))
KEPT = tuple((scorer, part, "partial_match") for scorer, part in FIGURES)
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Number of seeds → 97.5 % quantile of Student's t distribution."""


def base_network() -> tuple[str, ...]:
    """Overrides that give another Llama+ViT recipe the network and the action language of the base."""
    model, language = read_pretraining(PRETRAINING, {})[0].model, read_recipe(LORA).action_language
    heads = model.language_model.config
    keys = {
        "model.screen_size": list(model.screen_size),
        "model.visual_grid": list(model.visual_grid),
        "model.visual_merge": list(model.visual_merge),
        "model.vision.config.depths": model.vision.config["depths"],
        "model.language_model.config.num_attention_heads": heads["num_attention_heads"],
        "model.language_model.config.num_key_value_heads": heads["num_key_value_heads"],
        "action_language.name": language.name,
        "action_language.name_swipe_targets": language.name_swipe_targets,
    }
    return tuple(word for key, value in keys.items() for word in (f"--{key}", json.dumps(value).strip('"')))


@dataclass(frozen=True)
class Arm:
    recipe: Path
    keys: tuple[str, ...] = ()


ARMS = {
    "base + LoRA": Arm(LORA),
    "from scratch": Arm(SCRATCH, base_network()),
    "grey screens": Arm(LORA, ("--data.control", "grey_screens")),
    "no history": Arm(LORA, ("--data.control", "no_history")),
}


def main() -> None:
    options = parse()
    runs = {}
    for seed in options.seeds:
        for name in options.arms:
            row = one_run(name, seed, options)
            runs.setdefault(name, []).append(row)
            print(json.dumps({"arm": name, "seed": seed, **row}), flush=True)
    table = {name: summary(rows) for name, rows in runs.items()}
    show(table)
    print(json.dumps({"seeds": options.seeds, "arms": table, "runs": runs}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", type=Path, default=ROOT / "runs/demo", help="the folder of a demo")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="S")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS), metavar="NAME")
    parser.add_argument(
        "--steps", type=int, metavar="N", help="training steps (default: those of the first arm's recipe)"
    )
    parser.add_argument("--limit", type=int, default=160, metavar="N", help="test episodes (default 160)")
    parser.add_argument("--output", type=Path, default=ROOT / "build/pretraining", metavar="DIR")
    kept = Path(__file__).with_name("records.jsonl")
    parser.add_argument("--records", type=Path, default=kept, metavar="FILE", help="default: %(default)s")
    options = parser.parse_args()
    if len(options.seeds) not in (1, *STUDENT):
        parser.error(f"--seeds: intervals are known for at most {max(STUDENT)} of them")
    options.records = Records(options.records)
    return options


def one_run(name: str, seed: int, options: argparse.Namespace) -> dict[str, float]:
    recipe = read_recipe(LORA)
    steps = recipe.training.steps if options.steps is None else options.steps
    budget = options.output / f"{EMBEDDED[recipe.model.base][:8]}_{steps}_steps"
    folder = budget / f"{name.replace(' ', '_').replace('+', 'and')}_{seed}"
    run, shards = folder / "run", options.demo / "shards"
    if not (run / FINISHED).is_file():
        keys = ("--output", run, "--data.shards", shards, "--seed", str(seed), "--training.steps", str(steps))
        command("train", "--config", ARMS[name].recipe, *keys, *same_rows(recipe), *ARMS[name].keys)
    output = folder / f"evaluation_{options.limit}"
    if not (output / "metrics.json").is_file():
        scoring = ("--limit", options.limit, "--groups", options.demo / "aitw/groups.json", "--controls", "none")
        precision = ("--agent.bf16", "true") if has_bf16() else ()
        command("evaluate", "--checkpoint", run, "--shards", shards, "--output", output, *scoring, *precision)
    scores = json.loads((output / "metrics.json").read_text(encoding="utf-8"))[AGENT]
    key = f"{budget.name}/{folder.name}, {options.limit} episodes" + (", bfloat16" if has_bf16() else "")
    if not options.records.find(key):
        options.records.add(key, {"metrics": {AGENT: pruned(scores, KEPT)}})
    shares = headline(scores)
    seconds = json.loads((run / FINISHED).read_text(encoding="utf-8"))["figures"]["seconds"]
    return {f"{scorer} {part}": shares[scorer][part] for scorer, part in FIGURES} | {"seconds": seconds}


def same_rows(recipe: Recipe) -> tuple[str, ...]:
    return "--training.batch_size", str(recipe.training.batch_size), "--training.save_steps", "null"


def command(*words) -> None:
    environment = os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    arguments = [sys.executable, "-m", "vlm_agent.cli", *map(str, words)]
    subprocess.run(arguments, check=True, env=environment, stdout=sys.stderr)


def summary(rows: list[dict[str, float]]) -> dict[str, dict[str, float | None]]:
    """{figure: {mean, half}}, where `half` is half the width of the interval, None for one seed."""
    result = {}
    for figure in rows[0]:
        values = [row[figure] for row in rows]
        half = STUDENT[len(values)] * stdev(values) / len(values) ** 0.5 if len(values) in STUDENT else None
        result[figure] = {"mean": round(mean(values), 2), "half": None if half is None else round(half, 2)}
    return result


def show(table: dict[str, dict[str, dict[str, float | None]]]) -> None:
    shown = Table(title="Partial match, %: mean over seeds and 95 % interval", box=None)
    figures = list(next(iter(table.values())))
    for column in ("", *figures):
        shown.add_column(column, justify="right" if column else "left")
    for name, row in table.items():
        cells = [
            f"{cell['mean']:.1f}" + ("" if cell["half"] is None else f" ± {cell['half']:.1f}") for cell in row.values()
        ]
        shown.add_row(name, *cells)
    Console(width=140).print(shown)


if __name__ == "__main__":
    main()
