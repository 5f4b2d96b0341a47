"""Figures of runs: means over seeds with Student's intervals, differences paired by seed, and the floor."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev

from scipy.stats import binomtest, t

from studies.ablation.runs import Run
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.statistics.summary import read_columns
from vlm_agent.evaluation.offline.baselines import constant_predictions, most_frequent_action
from vlm_agent.evaluation.offline.run import AGENT, CEILING, MOST_FREQUENT
from vlm_agent.evaluation.predictions import read_predictions
from vlm_agent.evaluation.scoring.comparison import compare

Paths = Mapping[str, Sequence[str]]
"""Name of a figure → where it stands in the scores of a run."""

OfSeeds = Mapping[int, Mapping[str, float | None]]
"""Seed → the figures of its run."""


def figures_of(run: Run, paths: Paths) -> dict[str, float | None]:
    """The figures of a finished run, in percent, and its seconds."""
    return row_of(run.metrics[AGENT], paths) | {f"seconds of {name}": value for name, value in run.seconds.items()}


def row_of(scores: Mapping, paths: Paths) -> dict[str, float | None]:
    return {name: _at(scores, path) for name, path in paths.items()}


def _at(scores: Mapping, path: Sequence[str]) -> float | None:
    """None where the scores lack the figure, for example of a group without episodes."""
    found = scores
    for key in path:
        if key not in found:
            return None
        found = found[key]
    return found


def controls_of(runs: Sequence[Run], names: Sequence[str], paths: Paths) -> dict[str, dict]:
    """The controls and baselines that all of `runs` were evaluated with: {name: summary}."""
    found = [run.metrics for run in runs]
    names = [name for name in names if found and all(name in metrics for metrics in found)]
    return {name: summary([row_of(metrics[name], paths) for metrics in found]) for name in names}


def summary(rows: Sequence[Mapping[str, float | None]]) -> dict[str, dict]:
    """{figure: {mean, half, seeds}}, where `half` is half the width of Student's interval, None for one seed."""
    return {
        figure: mean_with_interval([value for row in rows if (value := row.get(figure)) is not None])
        for figure in rows[0]
    }


def mean_with_interval(values: Sequence[float]) -> dict:
    if not values:
        return {"mean": None, "half": None, "seeds": 0}
    count = len(values)
    half = t.ppf(0.975, count - 1) * stdev(values) / count**0.5 if count > 1 else None
    return {"mean": round(mean(values), 2), "half": None if half is None else round(half, 2), "seeds": len(values)}


def paired(better: OfSeeds, worse: OfSeeds, figures: Sequence[str]) -> dict[str, dict]:
    """{figure: {mean, half, seeds, verdict}} of `better` - `worse`, over the seeds of both; empty without any."""
    seeds = sorted(better.keys() & worse.keys())
    rows = {}
    for figure in figures if seeds else ():
        pairs = [(better[seed].get(figure), worse[seed].get(figure)) for seed in seeds]
        found = mean_with_interval([one - other for one, other in pairs if one is not None and other is not None])
        rows[figure] = found | {"verdict": _verdict(found)}
    return rows


def _verdict(found: Mapping) -> str:
    if found["half"] is None:
        return "one seed" if found["seeds"] else "no figure"
    if found["mean"] - found["half"] > 0:
        return "holds"
    return "opposite" if found["mean"] + found["half"] < 0 else "undecided"


FLOOR = "floor"

BASELINES = (MOST_FREQUENT, CEILING)
"""Without a model, so equal for all runs."""


def mcnemar(gained: int, lost: int) -> float | None:
    """The exact p of McNemar's test that a pair is as likely to gain as to lose; None where no pair differs."""
    return binomtest(gained, gained + lost).pvalue if gained + lost else None


def floor(run: Run) -> dict:
    """A run against its grey-screen control and the most frequent action, paired over episodes. Intervals are None
    where all episodes differ alike."""
    training = ShardDataset(run.data / "shards", split="train")
    constant = most_frequent_action(read_columns(training).actions())
    predictions = read_predictions(run.evaluation / "predictions.parquet")
    others = {
        "grey screens": read_predictions(run.evaluation / "predictions_grey_screens.parquet"),
        "most frequent action": constant_predictions(predictions, constant),
    }
    row: dict = {"arm": run.name, "seed": run.seed}
    for name, other in others.items():
        comparison = compare(other, predictions)
        for scorer in ("official", "strict"):
            share = comparison[scorer]["overall"]["partial_match"]
            interval = share["interval"]
            row[f"{name}, {scorer}"] = {
                "difference": round(share["difference"], 2),
                "interval": None if interval is None else [round(edge, 2) for edge in interval],
                "above 0": None if interval is None else interval[0] > 0,
            }
    return row


def floors(runs: Sequence[Run]) -> list[dict]:
    """The floors of the runs that have one."""
    return [run.figure(FLOOR) for run in runs if FLOOR in run.derived]
