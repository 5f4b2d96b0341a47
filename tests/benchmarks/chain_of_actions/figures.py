"""Figures of the runs: means with Student's intervals, the paper's rankings, and the floor."""

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

from chain_of_actions.arms import Run
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.evaluation.offline.baselines import constant_predictions, most_frequent_action
from vlm_agent.evaluation.offline.run import AGENT, CEILING, MOST_FREQUENT
from vlm_agent.evaluation.predictions import read_predictions
from vlm_agent.evaluation.scoring.comparison import compare

STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Number of seeds → 97.5 % quantile of Student's t distribution."""

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

CONTROLS = ("grey_screens", "no_history", MOST_FREQUENT, CEILING)


def figures_of(run: Run) -> dict[str, float | None]:
    """The figures of a finished run, in percent, and its seconds."""
    return _row(_metrics(run)[AGENT]) | {f"seconds of {stage}": value for stage, value in run.seconds.items()}


def controls_of(runs: Sequence[Run]) -> dict[str, dict]:
    """The controls and baselines of runs that were evaluated with them: {name: summary}."""
    found = [_metrics(run) for run in runs if run.arm.controls]
    names = [name for name in CONTROLS if found and all(name in metrics for metrics in found)]
    return {name: summary([_row(metrics[name]) for metrics in found]) for name in names}


def _row(scores: Mapping) -> dict[str, float | None]:
    return {name: scores.get(scorer, {}).get(part, {}).get(share) for name, (scorer, part, share) in FIGURES.items()}


def _metrics(run: Run) -> dict:
    return json.loads((run.evaluation / "metrics.json").read_text(encoding="utf-8"))


def summary(rows: Sequence[Mapping[str, float | None]]) -> dict[str, dict]:
    """{figure: {mean, half, seeds}}, where `half` is half the width of Student's interval, None for one seed."""
    result = {}
    for figure in rows[0]:
        values = [value for row in rows if (value := row.get(figure)) is not None]
        result[figure] = _mean_with_interval(values)
    return result


def _mean_with_interval(values: Sequence[float]) -> dict:
    if not values:
        return {"mean": None, "half": None, "seeds": 0}
    half = STUDENT[len(values)] * stdev(values) / len(values) ** 0.5 if len(values) in STUDENT else None
    return {
        "mean": round(mean(values), 2),
        "half": None if half is None else round(half, 2),
        "seeds": len(values),
    }


def rankings(figures: Mapping[str, Mapping[int, Mapping[str, float | None]]]) -> list[dict]:
    """Which of the paper's rankings hold; `figures[arm][seed]`. Differences are paired by seed."""
    rows = []
    for better, worse, where, printed in RANKINGS:
        seeds = sorted(figures.get(better, {}).keys() & figures.get(worse, {}).keys())
        if not seeds:
            continue
        row = {"better": better, "worse": worse, "where": where}
        row["printed"] = None if printed is None else round(printed, 2)
        for figure in ("official", "strict", "step match", "memory goals"):
            pairs = [(figures[better][seed].get(figure), figures[worse][seed].get(figure)) for seed in seeds]
            found = _mean_with_interval([one - other for one, other in pairs if one is not None and other is not None])
            row[figure] = found | {"verdict": _verdict(found)}
        rows.append(row)
    return rows


def _verdict(found: Mapping) -> str:
    if found["half"] is None:
        return "one seed"
    if found["mean"] - found["half"] > 0:
        return "holds"
    return "opposite" if found["mean"] + found["half"] < 0 else "undecided"


def floor(runs: Sequence[Run], options: Namespace) -> list[dict]:
    """The patch model against its grey-screen control and the most frequent action, paired over episodes."""
    training = ShardDataset(options.demo / "shards", split="train")
    constant = most_frequent_action(training.without_pixels(index) for index in range(len(training)))
    rows = []
    for run in runs:
        if not run.arm.controls:
            continue
        predictions = read_predictions(run.evaluation / "predictions.parquet")
        others = {
            "grey screens": read_predictions(run.evaluation / "predictions_grey_screens.parquet"),
            "most frequent action": constant_predictions(predictions, constant),
        }
        row = {"arm": run.name, "seed": run.seed}
        for name, other in others.items():
            comparison = compare(other, predictions)
            for scorer in ("official", "strict"):
                share = comparison[scorer]["overall"]["partial_match"]
                row[f"{name}, {scorer}"] = {
                    "difference": round(share["difference"], 2),
                    "interval": [round(edge, 2) for edge in share["interval"]],
                    "above 0": share["interval"][0] > 0,
                }
        rows.append(row)
    return rows


def write(path: Path, content: Mapping) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
