"""Published scorers of GUI-Odyssey. Ends count, and no step is left out."""

import numpy as np

from vlm_agent.evaluation.scoring.controls import texts
from vlm_agent.evaluation.scoring.controls.android_control import near_on_grid
from vlm_agent.evaluation.scoring.controls.matching import BUTTONS, ENDS, Matching
from vlm_agent.evaluation.scoring.controls.points import GRID, both_on_grid, distance, grid, holds, some, whole
from vlm_agent.evaluation.scoring.steps import StepTable, by_text


def _near(table: StepTable, rows: np.ndarray) -> np.ndarray:
    gold, predicted = both_on_grid(table, rows)
    return distance(gold / GRID, predicted / GRID) <= 0.14


def _near_or_in_the_box(table: StepTable, rows: np.ndarray) -> np.ndarray:
    values, place = table.targets.listed(rows)
    edges = np.hstack([whole(values[:, :2], GRID), whole(values[:, :2] + values[:, 2:], GRID)])
    predicted = whole(table.predicted.touch[rows], grid(table, rows))
    return _near(table, rows) | some(len(rows), place, holds(edges, predicted[place]))


DIALECTS = {
    "gui_odyssey": Matching(
        rule="in the gold element's box or within 0.14, same direction, one text in the other or half of its "
        "characters",
        source="GUI-Odyssey (Lu et al. 2024), src/eval_mm/GUIOdyssey_action_matching.py",
        points=_near_or_in_the_box,
        texts={"type": by_text(texts.alike)},
        left_out=(),
        needs_size=False,
    ),
    "agentcpm_odyssey": Matching(
        rule="points within 0.14, same direction, one text in the other, every end and wait are equal, a gold recents "
        "button is home",
        source="AgentCPM-GUI (Zhang et al. 2025), eval/utils/evaluator.py on GUI-Odyssey",
        points=_near,
        texts={"type": by_text(texts.contain)},
        one_kind=(BUTTONS, ("wait", *ENDS)),
        equal=("wait", *ENDS),
        gold_as={"recents": "home"},
        left_out=(),
        needs_size=False,
    ),
    "os_atlas_odyssey": Matching(
        rule="points within 140 thousandths, same direction, F1 of the words of the typing line above 0.5",
        source="OS-Atlas (Wu et al. 2024), evaluation of GUI-Odyssey",
        points=near_on_grid,
        texts={"type": by_text(texts.lines_alike)},
        left_out=(),
        needs_size=False,
    ),
}
"""Scorers of GUI-Odyssey by name."""
