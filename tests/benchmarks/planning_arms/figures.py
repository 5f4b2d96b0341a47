"""Figures of the runs, and their differences."""

from collections.abc import Mapping, Sequence
from statistics import mean

from ablation.figures import OfSeeds, controls_of, paired, row_of
from ablation.runs import Run

from planning_arms.arms import D_POT, FAMILIES, TABLES
from vlm_agent.evaluation.offline.run import AGENT, CEILING, MOST_FREQUENT, NEAREST_ELEMENT

SCORES = {
    "official": ("official", "overall", "partial_match"),
    "strict": ("strict", "overall", "partial_match"),
    "d_pot": ("d_pot", "overall", "partial_match"),
    "memory goals": ("official", "memory_goals", "partial_match"),
    "memory goals, strict": ("strict", "memory_goals", "partial_match"),
}
COSTS = {"tokens read": ("cost", "tokens_read"), "tokens written": ("cost", "tokens_written")}
"""Of an episode; what a step reads is counted whole, whether a decoder has it in its cache or not."""

FIGURES = SCORES | COSTS
SECONDS = "seconds an episode"
BASELINES = (MOST_FREQUENT, CEILING)
"""Without a model, so equal for all runs."""

REACH = NEAREST_ELEMENT
"""Also without a model, but of runs alone whose language numbers elements: no answer of theirs reaches more."""

SHARES = ("gold", "predicted", "official", "strict")


def figures_of(run: Run) -> dict[str, float | None]:
    """The figures of a finished run, and minutes of training. The seconds of an episode are of the whole evaluation in
    batches, by the number of passes."""
    seconds, passes = run.seconds, 1 + len(run.controls or ())
    known = {"training, min": round(seconds["training"] / 60, 2)} if "training" in seconds else {}
    if "evaluation" in seconds:
        known[SECONDS] = round(seconds["evaluation"] / (passes * run.limit), 2)
    return row_of(run.metrics[AGENT], FIGURES) | known


def differences(table: int, figures: Mapping[str, OfSeeds]) -> list[dict]:
    """Each arm's difference to `d_pot` (table 5), or of all pairs (table 7), paired by seed; `figures[arm][seed]`."""
    rows = []
    for family in FAMILIES:
        for better, worse in pairs_of(table):
            arms = (f"{family}, {arm}" for arm in (better, worse))
            if found := paired(*(figures.get(arm, {}) for arm in arms), tuple(FIGURES)):
                rows.append({"family": family, "better": better, "worse": worse} | found)
    return rows


def pairs_of(table: int) -> Sequence[tuple[str, str]]:
    if table == 5:
        return [(D_POT, arm) for arm in TABLES[5] if arm != D_POT]
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


def gap(arms: Mapping[str, Mapping], family: str) -> dict[str, dict] | None:
    """Of what a model with its own plans gets wrong, the points that the expert's plan mends (planning) and those that
    remain with it (grounding), and the share of planning in percent. None without both arms."""
    own, with_plan = (arms.get(f"{family}, {name}") for name in ("own plan", "expert's plan"))
    if own is None or with_plan is None:
        return None
    rows = {}
    for figure in SCORES:
        first, second = own[figure]["mean"], with_plan[figure]["mean"]
        if first is None or second is None:
            continue
        wrong, planning = 100 - first, second - first
        rows[figure] = {
            "wrong": round(wrong, 2),
            "planning": round(planning, 2),
            "grounding": round(100 - second, 2),
            "share of planning": round(100 * planning / wrong, 1) if wrong else None,
        }
    return rows
