"""One network, three inputs: words read from pixels, HTML read from pixels, HTML given (VisionTasker).

    python -m studies.vision_tasker.inputs [--quick] [--seeds 0 1 2] [--inputs "words read" …]
        [--parts ceiling runs online] [--episodes N] [--limit N] [--steps N] [--tasks N] [--tokenizer FOLDER]

Inputs; the prompts of all have the task and the current screen, and no history (the paper's table 2):

    words read   the description of what is read from pixels (eval/agents/vision_tasker.yaml)
    html read    the elements read from pixels, as HTML (vision_tasker_html.yaml with --elements read)
    html given   the phone's own elements, as HTML (vision_tasker_html.yaml)

For each seed the text model of recipes/comparison/text_chats_tiny.yaml is trained from random weights on the chats of
the same demonstrations with all inputs, is served, and answers the same test episodes with each. Screens have 896x416
pixels, because texts of 8 pixels cannot be read.

Parts:

    ceiling  of the expert's taps in the test episodes, those that an input can name: `missed` and `misread` ones are
             out of reach of any planner (see studies/vision_tasker/questions). Tokens of what is shown of a screen,
             by the tokenizer of FOLDER (default: the embedded base's)
    runs     official and strict scores; `next element`: of the expert's taps those that the agent answers with a tap on
             the same widget of the phone; `action type`: the right kind of action; `no action`: replies that are none;
             tokens an episode; differences paired by seed, those of the next element also over episodes
    online   success on simulated phones of the same size, the first seed

Texts of screens are kept in --output/texts by the picture's digest, chats and runs below --output; killed commands
resume, and several commands with different seeds can share the work once the chats are written. The figures of
finished runs are also in --records, from which later commands read them. Prints tables and the time left, and writes
--output/screen_inputs.json; the last line of output is JSON.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from studies.ablation.figures import BASELINES, controls_of, summary
from studies.ablation.runs import about, add_options, by_arm, complete_all, parsed, place_output
from studies.ablation.tables import show, show_rows
from studies.vision_tasker.inputs.arms import INPUTS, STEPS, InputRun, chats_name, run_of
from studies.vision_tasker.inputs.data import readers_of
from studies.vision_tasker.inputs.figures import (
    FIGURES,
    NEXT,
    PAIRS,
    SCORES,
    ceilings,
    chats_of,
    differences,
    figures_of,
    next_element,
    tap_differences,
)
from vlm_agent.files import write_json
from vlm_agent.models.run_layout import base_folder

PARTS = ("ceiling", "runs", "online")
EPISODES, LIMIT, TASKS = 300, 60, 30
QUICK_EPISODES, QUICK_STEPS, QUICK_LIMIT = 4, 4, 2


def main() -> None:
    options = parse()
    record = about(options) | {"steps": options.steps or STEPS, "training episodes": options.episodes}
    parts = {"ceiling": name_taps, "runs": train_and_evaluate, "online": online}
    for name in options.parts:
        record[name] = parts[name](options)
    write_json(options.output / "screen_inputs.json", record)
    print(json.dumps(record))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, four steps, two episodes: does everything run?")
    parser.add_argument("--episodes", type=int, metavar="N", help=f"training episodes (default {EPISODES})")
    parser.add_argument("--inputs", nargs="+", default=list(INPUTS), choices=list(INPUTS), metavar="INPUT")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--tokenizer", default=str(base_folder("phone_vlm_tiny") / "tokenizer"), metavar="FOLDER")
    add_options(parser, "vision_tasker/inputs")
    parser.set_defaults(limit=LIMIT, tasks=TASKS, data=None)
    options = parsed(parser, QUICK_STEPS, QUICK_LIMIT)
    if options.episodes is None:
        options.episodes = QUICK_EPISODES if options.quick else EPISODES
    place_output(options)
    options.data = options.output / f"data_{options.episodes}_{options.limit}"
    return options


def name_taps(options: argparse.Namespace) -> dict:
    key = f"ceiling, {options.limit} episodes, {Path(options.tokenizer).resolve().parent.name}"
    found = options.records.find(key).get("inputs")
    if found is None:
        found = ceilings(options.limit, readers_of(options.output), options.tokenizer)
        options.records.add(key, {"inputs": found})
    show_rows("Taps of the expert", [{"input": name} | row for name, row in found.items()])
    return found


def runs_of(options: argparse.Namespace) -> list[InputRun]:
    """The first seed of every input, then the second, so that an interrupted benchmark has all inputs."""
    return [recorded_run(name, seed, options) for seed in options.seeds for name in options.inputs]


def recorded_run(name: str, seed: int, options: argparse.Namespace) -> InputRun:
    derived = {NEXT: next_element, "chats": lambda run: chats_of(run.chats / chats_name(run.name))}
    kept = tuple(SCORES.values())
    return replace(run_of(name, seed, options), records=options.records, kept=kept, derived=derived)


def train_and_evaluate(options: argparse.Namespace) -> dict:
    runs = runs_of(options)
    figures = complete_all(runs, figures_of)
    groups = by_arm(runs)
    taps = tap_differences({name: [run.figure(NEXT)["verdicts"] for run in group] for name, group in groups.items()})
    seeds = " ".join(map(str, options.seeds))
    key = f"{runs[0].model.parent.name}, seeds {seeds}, {options.limit} episodes"
    if len(taps) == len(PAIRS) and not options.records.find(key):
        options.records.add(key, {"differences": taps})
    result = {
        "seeds": options.seeds,
        "inputs": {name: summary(list(of_seeds.values())) for name, of_seeds in figures.items()},
        "baselines": controls_of(runs[:1], BASELINES, SCORES),
        "differences": differences(figures),
        "next element, over episodes": taps,
        "chats": {name: group[0].figure("chats") for name, group in groups.items()},
        "taps": runs[0].figure(NEXT)["taps"],
        "runs": figures,
    }
    show_result(result)
    return result


def show_result(result: dict) -> None:
    rows = result["inputs"] | {name.replace("_", " "): row for name, row in result["baselines"].items()}
    show(rows, "%, and tokens an episode: mean over seeds and Student's 95 % interval")
    compared = {f"{row['better']} − {row['worse']}": row for row in result["differences"]}
    if compared:
        columns = {name: {figure: row[figure] for figure in FIGURES} for name, row in compared.items()}
        show(columns, "Differences, paired by seed")
    if result["next element, over episodes"]:
        show_rows("Next element, points, bootstrap over episodes", result["next element, over episodes"])
    show_rows("Chats of training", [{"input": name} | row for name, row in result["chats"].items()])


def online(options: argparse.Namespace) -> dict:
    """Success on simulated phones, of the first seed."""
    found = {}
    for number, name in enumerate(options.inputs):
        print(f"online, {name}: input {number + 1} of {len(options.inputs)}", flush=True)
        found[name] = recorded_run(name, options.seeds[0], options).online(options.tasks)
    show_rows("Online", [{"input": name} | row for name, rows in found.items() for row in rows])
    return found


if __name__ == "__main__":
    main()
