"""What a demonstration changes, paired over the tasks that failed without one."""

from collections.abc import Mapping, Sequence

import numpy as np

from studies.ablation.figures import mcnemar
from studies.vision_tasker.demonstrations.attempts import Attempt
from vlm_agent.evaluation.scoring.measures import interval, resampled, wilson

WITHOUT, OWN, UNRELATED = "without", "own", "unrelated"
ARMS = (WITHOUT, OWN, UNRELATED)
PAIRS = ((OWN, WITHOUT), (UNRELATED, WITHOUT), (OWN, UNRELATED))
MEASURES = ("success", "reached", "progress")

Rows = Mapping[str, Sequence[Mapping]]
"""Arm → the figures of each failed task, in one order."""


def progress(done: Sequence[str], expert: Sequence[str]) -> float:
    """The share of the expert's steps that were done, in their order, whatever was done between them: the longest
    common subsequence of both in words. A row of swipes in one direction is one step, however many there are. 1 for an
    expert who does nothing."""
    if not expert:
        return 1.0
    mine, theirs = ([_without_count(line) for line in lines] for lines in (done, expert))
    table = np.zeros((len(mine) + 1, len(theirs) + 1), np.int64)
    for i, line in enumerate(mine, 1):
        for j, other in enumerate(theirs, 1):
            table[i, j] = table[i - 1, j - 1] + 1 if line == other else max(table[i - 1, j], table[i, j - 1])
    return float(table[-1, -1]) / len(theirs)


def _without_count(line: str) -> str:
    return " ".join(line.split()[:2]) if line.startswith("swipe ") else line


def task_row(attempt: Attempt, own: int | None) -> dict:
    """`own`: the number of the task's own demonstration; None on phones on which nothing is recorded."""
    result, expert = attempt.result, attempt.of_expert().result
    return {
        "task": result["task"],
        "success": int(result["success"]),
        "reached": int(result["reached"]),
        "progress": progress(result["lines"], expert["lines"]),
        "reason": result["reason"],
        "shown its own": result["shown"] is not None and result["shown"] == own,
    }


def figures_of(rows: Rows) -> dict:
    """{"tasks", "arms": {arm: …}, "differences": [ … ]}, in percent."""
    arms = {
        arm: {measure: _mean([row[measure] for row in of_arm]) for measure in MEASURES}
        | {
            "interval of success": wilson(sum(row["success"] for row in of_arm), len(of_arm)),
            "shown its own": _mean([row["shown its own"] for row in of_arm]),
        }
        for arm, of_arm in rows.items()
    }
    pairs = [(one, other) for one, other in PAIRS if one in rows and other in rows]
    differences = [
        {"better": one, "worse": other, "measure": measure} | difference(rows[one], rows[other], measure)
        for one, other in pairs
        for measure in MEASURES
    ]
    return {"tasks": len(rows[WITHOUT]), "arms": arms, "differences": differences}


def difference(better: Sequence[Mapping], worse: Sequence[Mapping], measure: str) -> dict:
    """`better` - `worse` in points, with the interval of a bootstrap over tasks that resamples both together. For
    success and reached, `gained` and `lost` tasks, and the exact p of McNemar's test that these are equally likely."""
    change = np.array([one[measure] - other[measure] for one, other in zip(better, worse, strict=True)], float)
    edges = interval(resampled(change, np.ones(len(change)), measure))
    found: dict = {"difference": round(100 * float(change.mean()), 2) if len(change) else None, "interval": edges}
    if measure != "progress":
        gained, lost = int((change > 0).sum()), int((change < 0).sum())
        found |= {"gained": gained, "lost": lost, "McNemar p": mcnemar(gained, lost)}
    return found


def _mean(values: Sequence[float]) -> float | None:
    return round(100 * float(np.mean(values)), 2) if len(values) else None
