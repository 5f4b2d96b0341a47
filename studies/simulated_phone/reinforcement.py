"""Online evaluations of agents from one start, beside that start: success on practised and on held-out templates.

    python -m studies.simulated_phone.reinforcement START OTHER … --recipe recipes/phone_vlm_tiny_grpo.yaml

START and each OTHER are folders of `vlm-agent evaluate --online` with the same tasks. Prints a table in Markdown:
success, false completes and side effects in percent with their 95 % Wilson intervals, tasks gained and lost against
START with the exact p of McNemar's test, and success on the templates that the recipe holds out. Then, for every
template, the successes of each agent, and where failed tasks first leave the expert's path: the action after which
the screens differ, of the expert and of the agent. The last line of output is JSON.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from studies.ablation.figures import mcnemar
from vlm_agent.datasets.sources.traces import TraceStep, read_trace
from vlm_agent.episodes import Action
from vlm_agent.evaluation.about import AGENT
from vlm_agent.evaluation.online.evaluate import ONLINE
from vlm_agent.evaluation.online.runs import EXPERT
from vlm_agent.evaluation.scoring.measures import wilson
from vlm_agent.files import read_checked
from vlm_agent.recipe.run import read_recipe

RATES = ("success", "false_complete", "side_effects")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--recipe", type=Path, required=True, help="names the templates that were held out")
    options = parser.parse_args()
    played = read_recipe(options.recipe).reinforcement
    held_out = set() if played is None else set(played.held_out_templates)
    runs = {str(folder): outcomes(folder) for folder in options.folders}
    rows = rows_of(runs, held_out)
    header = ["agent", "success", "false completes", "side effects", "gained, lost", "McNemar p", "held-out templates"]
    print("\n".join(["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]))
    for name, row in rows.items():
        shares = [share(row[rate]) for rate in RATES]
        flips = ["–", "–"] if row["p"] is None else [f"{row['gained']}, {row['lost']}", f"{row['p']:.2g}"]
        print("| " + " | ".join([name, *shares, *flips, share(row["held_out"])]) + " |")
    print(templates(runs))
    print(deviations(runs))
    print(json.dumps(rows))


def outcomes(folder: Path) -> dict[str, dict[str, Any]]:
    """By task, its template and what became of the agent's run."""
    tasks = read_checked(folder / ONLINE, "evaluate again")["tasks"]
    return {
        one["task"]: {"template": one["template"], "expert_trace": one["runs"][EXPERT]["trace"], **one["runs"][AGENT]}
        for one in tasks
    }


def rows_of(runs: Mapping[str, Mapping[str, dict]], held_out: set[str]) -> dict[str, dict[str, Any]]:
    """By agent: `successes, of` pairs, and the tasks gained and lost against the first agent."""
    start = next(iter(runs.values()))
    found = {}
    for name, run in runs.items():
        if run.keys() != start.keys():
            raise SystemExit(f"{name} has other tasks than {next(iter(runs))}")
        gained, lost = (
            sum(a[task]["success"] and not b[task]["success"] for task in run) for a, b in ((run, start), (start, run))
        )
        found[name] = {
            **{rate: counted(bool(one[rate]) for one in run.values()) for rate in RATES},
            "gained": gained,
            "lost": lost,
            "p": mcnemar(gained, lost),
            "held_out": counted(one["success"] for one in run.values() if one["template"] in held_out),
        }
    return found


def counted(those: Iterable[bool]) -> tuple[int, int]:
    known = list(those)
    return sum(known), len(known)


def share(counts: tuple[int, int]) -> str:
    edges = wilson(*counts)
    return "–" if edges is None else f"{100 * counts[0] / counts[1]:.1f} ({edges[0]:.1f}–{edges[1]:.1f})"


def templates(runs: Mapping[str, Mapping[str, dict]]) -> str:
    """A line a template: its tasks, and the successes of each agent."""
    first = next(iter(runs.values()))
    names = sorted({one["template"] for one in first.values()})
    lines = ["", f"{'template':22} tasks  " + "  ".join(runs)]
    for name in names:
        of_runs = [[one["success"] for one in run.values() if one["template"] == name] for run in runs.values()]
        wins = "  ".join(f"{sum(those):{len(run)}}" for run, those in zip(runs, of_runs, strict=True))
        lines.append(f"{name:22} {len(of_runs[0]):5}  {wins}")
    return "\n".join(lines)


def deviations(runs: Mapping[str, Mapping[str, dict]]) -> str:
    """A line for each pair of an expert's and an agent's action, with the failed tasks of each agent that it starts."""
    counts = {
        folder: Counter(
            first_deviation(Path(folder) / one["expert_trace"], Path(folder) / one["trace"])
            for one in run.values()
            if not one["success"]
        )
        for folder, run in runs.items()
    }
    pairs = sum(counts.values(), Counter[str]())
    lines = ["", f"{'first deviation: expert, agent':34} " + "  ".join(runs)]
    for pair, _ in pairs.most_common():
        lines.append(f"{pair:34} " + "  ".join(f"{found[pair]:{len(folder)}}" for folder, found in counts.items()))
    return "\n".join(lines)


def first_deviation(expert: Path, agent: Path) -> str:
    """The actions of two traces of a task at the last screen that is the same in both from the start, as "expert,
    agent"."""
    known, taken = (read_trace(folder).steps for folder in (expert, agent))

    def show_the_same(pair: tuple[TraceStep, TraceStep]) -> bool:
        return (expert / pair[0].screen).read_bytes() == (agent / pair[1].screen).read_bytes()

    *_, (last, own) = takewhile(show_the_same, zip(known, taken, strict=False))
    return f"{in_words(last.action)}, {in_words(own.action)}"


def in_words(action: Action | None) -> str:
    if action is None:
        return "no action"
    return f"swipe {action.direction}" if action.is_swipe else action.name


if __name__ == "__main__":
    main()
