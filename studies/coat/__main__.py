"""Thoughts of Chain-of-Action-Thought on the simulated phone: rows of AitZ's table 5, for two families of models.

    python -m studies.coat [--quick] [--seeds 0 1 2] [--families phone_vlm auto_ui] [--arms "row 1" "row 9" …]
        [--parts runs thoughts online]

Families: `phone_vlm`, the tiny phone VLM with LoRA on 600 trajectories (recipes/phone_vlm_tiny_lora.yaml), and
`auto_ui` (recipes/auto_ui_tiny.yaml, its own number of steps). Rows, by `data.notes`:

    row 1             no texts
    row 3             the result of the previous action (AR) is read
    row 9             AR is read, thought (AT) and description (AD) of the action are learned
    row 10            the description of the screen (SD) is read, too
    row 1, binned     without the names that the language `named` of phone_vlm writes before a tap
    …, 10 epochs      2,000 steps on 200 trajectories
    row 3, shuffled   trained and evaluated with ARs of other actions

The data is `vlm-agent simulate --thoughts`, made at the first run; SD and AR come from activity and elements alone.
Row 1 is evaluated on grey screens and without history, too, rows 3 and 9 with shuffled ARs. Parts: `runs` (table,
differences paired by seed, whether goal progress rises as the paper says, and the floor: row 1 against its grey-screen
control and the most frequent action), `thoughts` (rows 9 and 10: how often a thought names what is then done, how often
both are right, and ten thoughts as they are), `online` (rows 1 and 9 on 100 tasks, the first seed).

Runs are cached in --output by their recipe; killed ones resume, and several commands with different families, arms or
seeds can share the work. The figures of a finished run are also in --records, from which later commands read them.
Prints tables and the time left, and writes --output/coat.json; the last line of output is JSON.

Cost: 36 runs. Measured with 3 to 5 other processes on the same two cores: for phone_vlm 1.4 s a trajectory of row 9 (14
minutes of training) and 0.26 s a step and pass of its evaluation (4.5 minutes a pass over 160 episodes); for auto_ui
2.0 s a step of row 1 (23 minutes of training) and 4.2 s of row 9 (49 minutes).
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from studies.ablation.data import make_data
from studies.ablation.figures import BASELINES, FLOOR, controls_of, floor, floors, summary
from studies.ablation.runs import Run, about, add_options, by_arm, complete_all, data_of, parsed, place_output
from studies.ablation.tables import cell_of, show, show_rows
from studies.coat.arms import FAMILIES, ROWS, run_of
from studies.coat.figures import CONTROLS, FIGURES, PROGRESS, differences, figures_of
from studies.coat.thoughts import WRITTEN, written
from vlm_agent.files import write_json
from vlm_agent.files.console import only_printable

PARTS = ("runs", "thoughts", "online")
ONLINE = ("row 1", "row 9")
EPISODES, QUICK_EPISODES = 1600, 60
QUICK_STEPS, QUICK_LIMIT = 10, 3


def main() -> None:
    options = parse()
    make_data(options.data, QUICK_EPISODES if options.quick else EPISODES)
    record = about(options) | {"steps": {name: options.steps or family.steps for name, family in FAMILIES.items()}}
    parts = {"runs": train_and_evaluate, "thoughts": written_thoughts, "online": online}
    for name in options.parts:
        record[name] = parts[name](options)
    write_json(options.output / "coat.json", record)
    print(json.dumps(record))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="one seed, ten steps, three episodes: does everything run?"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="demonstrations, shards, features (default OUTPUT/data)"
    )
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES), metavar="NAME")
    parser.add_argument("--arms", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="ROW")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    add_options(parser, "coat")
    options = parsed(parser, QUICK_STEPS, QUICK_LIMIT)
    place_output(options)
    return options


def runs_of(options: argparse.Namespace) -> list[Run]:
    """The first seed of every arm, then the second, so that an interrupted benchmark has all arms."""
    return [
        recorded_run(family, row, seed, options)
        for seed in options.seeds
        for family in options.families
        for row in options.arms
    ]


def recorded_run(family: str, row: str, seed: int, options: argparse.Namespace) -> Run:
    run = run_of(family, row, seed, options)
    derived = {FLOOR: floor} if "grey_screens" in run.controls else {}
    if {"think", "action"} <= set(data_of(run).notes):
        derived[WRITTEN] = written
    return replace(run, records=options.records, kept=tuple(FIGURES.values()), derived=derived)


def train_and_evaluate(options: argparse.Namespace) -> dict:
    runs = runs_of(options)
    figures = complete_all(runs, figures_of)
    groups = by_arm(runs)
    with_controls = {arm: group for arm, group in groups.items() if group[0].controls}
    result = {
        "seeds": options.seeds,
        "arms": {arm: summary(list(of_seeds.values())) for arm, of_seeds in figures.items()},
        "controls": {arm: controls_of(group, CONTROLS, FIGURES) for arm, group in with_controls.items()},
        "baselines": controls_of(runs[:1], BASELINES, FIGURES),
        "differences": differences(figures),
        "floor": floors(runs),
        "runs": figures,
    }
    show_result(result)
    return result


def show_result(result: dict) -> None:
    rows = {}
    for arm, row in result["arms"].items():
        rows[arm] = row
        controls = result["controls"].get(arm, {})
        rows |= {f"{arm}: {name.replace('_', ' ')}": control for name, control in controls.items()}
    rows |= {name.replace("_", " "): row for name, row in result["baselines"].items()}
    show(rows, "%: mean over seeds and Student's 95 % interval")
    compared = {f"{row['family']}: {row['better']} − {row['worse']}": row for row in result["differences"]}
    if compared:
        columns = {name: {figure: row[figure] for figure in FIGURES} for name, row in compared.items()}
        show(columns, "Differences in points, paired by seed")
    for name, row in compared.items():
        if row["printed"] is not None:
            found = row[PROGRESS]
            print(f"{name}: {PROGRESS} {cell_of(found)} (paper: {row['printed']:+.2f}): {found['verdict']}")
    for row in result["floor"]:
        print(json.dumps(row))


def written_thoughts(options: argparse.Namespace) -> dict:
    """Figures of the arms that write thoughts: shares in percent, and examples of the first seed."""
    runs = [run for run in runs_of(options) if WRITTEN in run.derived]
    found: dict[str, dict] = {}
    for run in runs:
        run.complete()
        thoughts = run.figure(WRITTEN)
        of_arm = found.setdefault(run.name, {"runs": {}, "examples": thoughts["examples"]})
        of_arm["runs"][run.seed] = thoughts["shares"]
    for of_arm in found.values():
        of_arm["shares"] = summary(list(of_arm["runs"].values()))
    if found:
        show({name: of_arm["shares"] for name, of_arm in found.items()}, "Thoughts, % of steps")
    for name, of_arm in found.items():
        show_examples(name, of_arm["examples"])
    return found


def show_examples(name: str, rows: list[dict[str, str]]) -> None:
    console = Console(width=170, soft_wrap=True)
    console.print(f"\n{name}: thoughts as they are", markup=False, highlight=False)
    for row in rows:
        for key, text in row.items():
            console.print(f"  {key:<12} {only_printable(text)}", markup=False, highlight=False)
        console.print()


def online(options: argparse.Namespace) -> dict:
    """Success on simulated phones, where an agent that reads results makes them itself from its own screens."""
    found = {}
    for family in options.families:
        for row in ONLINE:
            if row in options.arms:
                run = recorded_run(family, row, options.seeds[0], options)
                found[run.name] = run.online(options.tasks)
    if found:
        show_rows("Online", [{"arm": name} | row for name, rows in found.items() for row in rows])
    return found


if __name__ == "__main__":
    main()
