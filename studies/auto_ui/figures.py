"""Figures of the runs, and the paper's rankings."""

from collections.abc import Mapping

from studies.ablation.figures import OfSeeds, paired
from vlm_agent.evaluation.offline.run import CEILING, MOST_FREQUENT

FIGURES = {
    "official": ("official", "overall", "partial_match"),
    "strict": ("strict", "overall", "partial_match"),
    "step match": ("official", "overall", "step_match"),
    "memory goals": ("official", "memory_goals", "partial_match"),
    "memory goals, strict": ("strict", "memory_goals", "partial_match"),
    "action type": ("official", "overall", "action_type"),
    "tap, strict": ("strict", "overall", "tap"),
    "typed text": ("strict", "overall", "typed_text"),
}
RANKINGS = (
    ("full", "without chains", "Table 3", 74.27 - 68.53),
    ("full", "history only", "Table 3", 74.27 - 73.78),
    ("full", "plan only", "Table 3", 74.27 - 68.81),
    ("history only", "without chains", "Table 3", 73.78 - 68.53),
    ("plan only", "without chains", "Table 3", 68.81 - 68.53),
    ("history only", "plan only", "Table 3", 73.78 - 68.81),
    ("full", "unnormalised", "Table 3", 74.27 - 70.23),
    ("screen description", "full", "Table 7, base", 75.54 - 72.84),
    ("full", "pooled", "not in the paper", None),
    ("full", "grey screens", "not in the paper", None),
    ("pooled", "grey screens", "not in the paper", None),
    ("full", "new word embeddings", "not in the paper", None),
)
"""(better, worse, where, difference of the overall score in points) as printed by Zhang and Zhang (2023)."""

COMPARED = ("official", "strict", "step match", "memory goals")
CONTROLS = ("grey_screens", "no_history", MOST_FREQUENT, CEILING)


def rankings(figures: Mapping[str, OfSeeds]) -> list[dict]:
    """Which of the paper's rankings hold; `figures[arm][seed]`. Differences are paired by seed."""
    rows = []
    for better, worse, where, printed in RANKINGS:
        found = paired(figures.get(better, {}), figures.get(worse, {}), COMPARED)
        if found:
            about = {"better": better, "worse": worse, "where": where}
            rows.append(about | {"printed": None if printed is None else round(printed, 2)} | found)
    return rows
