"""Figures of the runs, and which of the paper's differences hold."""

from collections.abc import Mapping

from studies.ablation.figures import OfSeeds, paired, row_of
from studies.ablation.runs import Run
from studies.coat.arms import FAMILIES, arm_of
from vlm_agent.evaluation.offline.run import AGENT

FIGURES = {
    "action type": ("aitz", "coat_point", "total_type", "value"),
    "match": ("aitz", "coat_point", "total", "value"),
    "goal progress": ("aitz", "coat_point", "goal_progress", "value"),
    "success": ("aitz", "coat_point", "success", "value"),
    "official": ("official", "overall", "partial_match"),
    "strict": ("strict", "overall", "partial_match"),
    "strict goal progress": ("strict", "overall", "goal_progress"),
    "memory goals": ("official", "memory_goals", "partial_match"),
    "memory goals, strict": ("strict", "memory_goals", "partial_match"),
}
"""The first four as the paper defines them, over all steps or episodes; the others are means over subsets."""

PROGRESS = "goal progress"
CONTROLS = ("grey_screens", "no_history", "shuffled_results")

PRINTED = {"row 1": 6.59, "row 3": 14.06, "row 9": 14.51, "row 10": 13.90}
"""Goal progress in table 5 (Zhang et al. 2024): Auto-UI base on Android in the Zoo."""

COMPARISONS = (
    ("row 3", "row 1"),
    ("row 9", "row 1"),
    ("row 10", "row 1"),
    ("row 9", "row 3"),
    ("row 10", "row 9"),
    ("row 3", "row 3, shuffled"),
    ("row 1", "row 1, binned"),
)


def figures_of(run: Run) -> dict[str, float | None]:
    """The figures of a finished run in percent, and its minutes."""
    minutes = {f"{stage}, min": round(seconds / 60, 2) for stage, seconds in run.seconds.items()}
    return row_of(run.metrics[AGENT], FIGURES) | minutes


def differences(figures: Mapping[str, OfSeeds]) -> list[dict]:
    """The differences of `COMPARISONS` in each family, paired by seed; `figures[arm][seed]`.

    A verdict `holds` if the interval of better - worse is above 0. `printed`: the paper's difference of goal progress.
    """
    rows = []
    for family in FAMILIES:
        for better, worse in COMPARISONS:
            arms = (arm_of(family, row) for row in (better, worse))
            if found := paired(*(figures.get(arm, {}) for arm in arms), tuple(FIGURES)):
                known = better in PRINTED and worse in PRINTED
                printed = round(PRINTED[better] - PRINTED[worse], 2) if known else None
                rows.append({"family": family, "better": better, "worse": worse, "printed": printed} | found)
    return rows
