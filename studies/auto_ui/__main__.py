"""Auto-UI on the simulated phone: the ablations of its tables 3, 4 and 7 at equal steps, its costs, and success online.

    make demo                                     # for the shards
    python -m studies.auto_ui [--quick] [--seeds 0 1 2] [--arms full pooled …]
        [--parts runs cost online transfer]

Each arm changes one key of recipes/auto_ui_tiny.yaml and is trained for its number of steps:

- full: visual tokens as features (patches), 8 earlier actions, a plan of 4 types, normalised actions;
- grey screens: the features of a grey screen, in training and in evaluation;
- pooled: their mean, the paper's form;
- without chains, history only, plan only, unnormalised: table 3; screen description: table 7;
- new word embeddings: without starting those of words from the base's;
- demo's agent: recipes/phone_vlm_tiny_lora.yaml, by its own number of steps, on whole trajectories.

The full arm is also evaluated on grey screens, without history, and beside the most frequent action and the blind
ceiling. Runs are cached in --output by recipe and steps; killed ones resume, and several commands with different arms
or seeds can share the work. The figures of a finished run are also in --records. Parts: `runs` as above, `cost`
(table 5) and `online` (100 tasks), both for the first seed of the full arm and of the demo's agent, and `transfer`
(figure 5: five models by five subsets, 200 steps each). Prints tables and the time left, and writes
--output/auto_ui.json; the last line of output is JSON.
"""

import argparse
import json
from functools import partial
from pathlib import Path

from studies.ablation.figures import controls_of, figures_of, floors, summary
from studies.ablation.runs import ROOT, Run, about, add_options, complete_all, parsed
from studies.ablation.tables import show, show_rows
from studies.auto_ui.arms import ARMS, RECIPE, run_of
from studies.auto_ui.cost import cost_of
from studies.auto_ui.figures import CONTROLS, FIGURES, rankings
from studies.auto_ui.transfer import transfer_of
from vlm_agent.files import write_json
from vlm_agent.recipe.run import read_recipe

PARTS = ("runs", "cost", "online", "transfer")
BOTH = ("full", "demo's agent")
QUICK_STEPS, QUICK_EPISODES = 10, 5


def main() -> None:
    options = parse()
    record = about(options) | {"steps": options.steps}
    if "runs" in options.parts:
        record |= train_and_evaluate(options)
    if "cost" in options.parts:
        record["cost"] = {name: cost_of(run.trained, options.demo / "shards", 40) for name, run in both(options)}
        show_rows("Cost (table 5)", [{"agent": name} | row for name, row in record["cost"].items()])
    if "online" in options.parts:
        record["online"] = {name: run.online(options.tasks) for name, run in both(options)}
        show_rows("Online", [{"agent": name} | row for name, rows in record["online"].items() for row in rows])
    if "transfer" in options.parts:
        record["transfer"] = transfer_of(options)
    write_json(options.output / "auto_ui.json", record)
    print(json.dumps(record))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, ten steps, five episodes: does everything run?")
    parser.add_argument("--demo", type=Path, default=ROOT / "runs/demo", help="the folder of a demo")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS), metavar="NAME")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    add_options(parser, "auto_ui")
    options = parsed(parser, QUICK_STEPS, QUICK_EPISODES)
    if options.steps is None:
        options.steps = read_recipe(RECIPE).training.steps
    return options


def train_and_evaluate(options: argparse.Namespace) -> dict:
    """The first seed of every arm, then the second, so that an interrupted benchmark has all arms."""
    runs = [run_of(name, seed, options) for seed in options.seeds for name in options.arms]
    figures = complete_all(runs, partial(figures_of, paths=FIGURES))
    with_controls = [run for run in runs if run.controls]
    result = {
        "seeds": options.seeds,
        "arms": {name: summary(list(of_seeds.values())) for name, of_seeds in figures.items()},
        "controls": controls_of(with_controls, CONTROLS, FIGURES),
        "rankings": rankings(figures),
        "floor": floors(with_controls),
        "runs": figures,
    }
    rows = result["arms"] | {f"full: {name}": row for name, row in result["controls"].items()}
    show(rows, "%: mean over seeds and Student's 95 % interval")
    for row in result["rankings"]:
        found = row["official"]
        width = "" if found["half"] is None else f" ± {found['half']:.1f}"
        printed = "" if row["printed"] is None else f" (paper: {row['printed']:+.2f})"
        print(f"{row['better']} − {row['worse']}: {found['mean']:+.1f}{width}{printed}: {found['verdict']}")
    for row in result["floor"]:
        print(json.dumps(row))
    return result


def both(options: argparse.Namespace) -> list[tuple[str, Run]]:
    """The agents whose cost and success are compared, trained if they are not yet."""
    runs = [(name, run_of(name, options.seeds[0], options)) for name in BOTH if name in options.arms]
    for _, run in runs:
        run.complete_files()
    return runs


if __name__ == "__main__":
    main()
