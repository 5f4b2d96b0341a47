"""Figures of the runs, and their differences."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from studies.ablation.figures import BASELINES, OfSeeds, controls_of, mean_with_interval, paired, row_of
from studies.ablation.runs import Run, command
from studies.d_pot.arms import D_POT, FAMILIES, TABLES
from vlm_agent.evaluation.comparison.evaluated import read_metrics
from vlm_agent.evaluation.offline.run import AGENT, METRICS, NEAREST_ELEMENT
from vlm_agent.models.weights.precision import has_bf16

SCORES = {
    "official": ("official", "overall", "partial_match"),
    "strict": ("strict", "overall", "partial_match"),
    "d_pot": ("d_pot", "overall", "partial_match"),
    "not an action": ("official", "overall", "parse_failures"),
}
MEMORY = {"memory goals": "official", "memory goals, strict": "strict"}
"""Figure → scorer, of the episodes of `ablation.data.make_memory_goals`."""

MEMORY_SCORES = "memory"
"""The key of these scores in a record."""

COSTS = {"tokens read": ("cost", "tokens_read"), "tokens written": ("cost", "tokens_written")}
"""Costs of an episode; what a step reads is counted whole, whether a decoder has it in its cache or not."""

FIGURES = SCORES | COSTS
SECONDS = "CPU seconds an episode"

REACH = NEAREST_ELEMENT
"""Also without a model, but of runs alone whose language numbers elements: no answer of theirs reaches more."""

SHARES = ("gold", "predicted", "official", "strict")


def figures_of(run: Run) -> dict[str, float | None]:
    """The figures of a finished run, and minutes of training. The seconds of an episode are of the whole evaluation in
    batches, start-up and report included, by the number of passes."""
    seconds, passes = run.cpu_seconds, 1 + len(run.controls or ())
    known: dict[str, float | None] = dict(run.figure(MEMORY_SCORES)) if MEMORY_SCORES in run.derived else {}
    if "training" in seconds:
        known["training, CPU min"] = round(seconds["training"] / 60, 2)
    if "evaluation" in seconds:
        known[SECONDS] = round(seconds["evaluation"] / (passes * run.limit), 2)
    return row_of(run.metrics[AGENT], FIGURES) | known


def memory_scores(run: Run, data: Path, benchmark: Path) -> dict[str, float | None]:
    """Scores of a run with its files: `MEMORY`, and the number of `memory episodes`. `data`: of `make_memory_goals`."""
    folder = run.folder / MEMORY_SCORES
    if not (folder / METRICS).is_file():
        words = ("--checkpoint", run.trained, "--shards", data / "shards", "--benchmark", benchmark)
        words += ("--agent.bf16", "true") if has_bf16() else ()
        command("evaluate", *words, "--controls", "none", "--output", folder)
    scores = read_metrics(folder)[AGENT]
    shares = {name: scores[scorer]["overall"]["partial_match"] for name, scorer in MEMORY.items()}
    return shares | {"memory episodes": scores["official"]["overall"]["episodes"]}


PASTS = ("none", "react 0", "react 1", "react 2", "react 4", "react all")


def differences(table: int, figures: Mapping[str, OfSeeds]) -> list[dict]:
    """The differences of `pairs_of`, paired by seed; `figures[arm][seed]`."""
    rows = []
    for family in FAMILIES:
        for better, worse in pairs_of(table):
            arms = (f"{family}, {arm}" for arm in (better, worse))
            if found := paired(*(figures.get(arm, {}) for arm in arms), (*FIGURES, *MEMORY, SECONDS)):
                rows.append({"family": family, "better": better, "worse": worse} | found)
    return rows


def pairs_of(table: int) -> Sequence[tuple[str, str]]:
    """(better, worse) of the paper: in table 5 d_pot and each other arm, more past and less, and a past in words and in
    screens."""
    if table == 5:
        more_past = list(zip(PASTS[1:], PASTS, strict=False))
        of_plans = [(D_POT, arm) for arm in TABLES[5] if arm != D_POT]
        return [*of_plans, ("dynamic", "static"), *more_past, ("react 0", "react all")]
    return [("own plan", "no plan"), ("expert's plan", "own plan"), ("expert's plan", "no plan")]


def baselines(runs: Sequence[Run]) -> dict[str, dict]:
    """The scores without a model: `BASELINES`, and `REACH` of each family that has it."""
    found = controls_of(runs[:1], BASELINES, FIGURES)
    for family in FAMILIES:
        of_family = [run for run in runs if run.name.startswith(f"{family}, ")]
        for row in controls_of(of_family[:1], (REACH,), FIGURES).values():
            found[f"{family}, {REACH}"] = row
    return found


def kinds(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """By share of `SHARES` and kind of action, percentages of all steps (table 6), means over seeds. A kind that a run
    lacks is 0 there."""
    found = [run.metrics[AGENT]["kinds"] for run in runs]
    return {
        share: {
            name: round(mean(one[share].get(name, 0.0) for one in found), 2)
            for name in dict.fromkeys(name for one in found for name in one[share])
        }
        for share in SHARES
        if all(share in one for one in found)
    }


def gap(figures: Mapping[str, OfSeeds], family: str) -> dict[str, dict] | None:
    """Points that a model with its own plans gets wrong: those that the expert's plan mends (planning) and those that
    remain with it (grounding), and the share of planning in percent: means over seeds with Student's intervals. None
    without both arms of a seed."""
    own, with_plan = (figures.get(f"{family}, {name}", {}) for name in ("own plan", "expert's plan"))
    seeds = sorted(own.keys() & with_plan.keys())
    if not seeds:
        return None
    rows = {}
    for figure in ("official", "strict", "d_pot"):
        pairs = [(own[seed][figure], with_plan[seed][figure]) for seed in seeds]
        known = [(first, second) for first, second in pairs if first is not None and second is not None]
        rows[figure] = {
            "wrong": mean_with_interval([100 - first for first, _ in known]),
            "planning": mean_with_interval([second - first for first, second in known]),
            "grounding": mean_with_interval([100 - second for _, second in known]),
            "share of planning": mean_with_interval(
                [100 * (second - first) / (100 - first) for first, second in known if first < 100]
            ),
        }
    return rows
