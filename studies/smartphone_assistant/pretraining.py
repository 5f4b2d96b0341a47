"""Ablation of pretraining on drawn screens, of the agent's inputs and of its language: equal budgets, several seeds.

    make demo                                   # for the shards
    python -m studies.smartphone_assistant.pretraining [--seeds 0 1 2] [--arms "base + LoRA" "from scratch"]

Each arm is trained on the demo's demonstrations for the number of steps of the first arm's recipe, and evaluated on the
demo's test episodes:

- base + LoRA: recipes/phone_vlm_tiny_lora.yaml, on the base of the package;
- from scratch: recipes/llama_vit_tiny.yaml with the network and the action language of the base, all weights trained
  from random initialisation;
- grey screens, no history: base + LoRA under this control, in training and in evaluation;
- binned, coat: base + LoRA in these action languages: bins and binned swipes as in the paper, thousandths and four
  fixed swipes. The base learned bins, in the language of the recipe, `named`.

Results are cached in --output, in one folder per base and budget. Several commands with different arms or seeds can
share the work; a last one summarises all. The figures of a run are also in --records, from which later commands read
them. Prints a table of means with Student's 95 % intervals over seeds; the last line of output is JSON.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from shipped_weights.phone_vlm_tiny.settings import read_pretraining
from studies.ablation.figures import row_of, summary
from studies.ablation.records import Records
from studies.ablation.runs import ROOT, Run, check_seeds, complete_all
from studies.ablation.tables import show
from vlm_agent.evaluation.offline.run import AGENT
from vlm_agent.models.run_layout import EMBEDDED
from vlm_agent.recipe.run import read_recipe

LORA, SCRATCH = ROOT / "recipes/phone_vlm_tiny_lora.yaml", ROOT / "recipes/llama_vit_tiny.yaml"
PRETRAINING = ROOT / "shipped_weights/phone_vlm_tiny/curriculum.yaml"
PATHS = {
    f"{scorer} {part}": (scorer, part, "partial_match")
    for part in ("overall", "memory_goals")
    for scorer in ("strict", "official")
} | {"strict taps": ("strict", "overall", "tap"), "official swipes": ("official", "overall", "swipe")}


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
    "binned": Arm(LORA, ("--action_language", "{name: binned}")),
    "coat": Arm(LORA, ("--action_language", "{name: coat}")),
}


def main() -> None:
    options = parse()
    runs = [run_of(name, seed, options) for seed in options.seeds for name in options.arms]
    rows = {name: list(of_seeds.values()) for name, of_seeds in complete_all(runs, figures_of).items()}
    table = {name: summary(of_arm) for name, of_arm in rows.items()}
    show(table, "Partial match, %: mean over seeds and 95 % interval")
    print(json.dumps({"seeds": options.seeds, "arms": table, "runs": rows}))


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
    check_seeds(parser, options)
    options.records = Records(options.records)
    return options


def run_of(name: str, seed: int, options: argparse.Namespace) -> Run:
    recipe, arm = read_recipe(LORA), ARMS[name]
    steps = recipe.training.steps if options.steps is None else options.steps
    budget = options.output / f"{EMBEDDED[recipe.model.base][:8]}_{steps}_steps"
    same_rows = ("--training.batch_size", recipe.training.batch_size, "--training.save_steps", "null")
    return Run(
        name,
        seed,
        budget / f"{folder_of(name)}_{seed}",
        recipe=arm.recipe,
        data=options.demo,
        limit=options.limit,
        keys=("--training.steps", steps, *same_rows, *arm.keys),
        records=options.records,
        kept=tuple(PATHS.values()),
    )


def folder_of(arm: str) -> str:
    return arm.replace(" ", "_").replace("+", "and")


def figures_of(run: Run) -> dict[str, float | None]:
    return row_of(run.metrics[AGENT], PATHS) | {"seconds": run.seconds.get("training")}


if __name__ == "__main__":
    main()
