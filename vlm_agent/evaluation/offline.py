"""Offline evaluation: an agent answers every step of recorded episodes, each from the history as demonstrated.

    OUT/predictions.parquet                 the agent; predictions_<control>.parquet beside it
    OUT/metrics.json                        every score of every run
    OUT/report.html
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import track

from vlm_agent.agents.vlm import VlmAgent
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.evaluation.baselines import blind_ceiling, constant_predictions, most_frequent_action
from vlm_agent.evaluation.metrics import score
from vlm_agent.evaluation.predictions import (
    Prediction,
    check_complete,
    predictions_for,
    read_predictions,
    write_predictions,
)
from vlm_agent.evaluation.report import write_report
from vlm_agent.evaluation.table import comparison_table

AGENT = "trained"
CONTROLS = {"grey_screens": {"grey": True}, "no_history": {"remember": False}}
"""The agent with a sense taken away: how much of its score needs eyes, and how much needs memory."""

MOST_FREQUENT, CEILING = "most_frequent_action", "blind_ceiling"


@dataclass(frozen=True)
class Benchmark:
    """What is measured on what: the shards' `split`, at most `limit` episodes, extra `groups` of episode ids."""

    shards: Path
    split: str
    groups: Mapping[str, list[str]] = field(default_factory=dict)
    limit: int | None = None


def evaluate(
    checkpoint: Path, benchmark: Benchmark, output: Path, console: Console, bf16: bool = False
) -> dict[str, dict]:
    """Scores the agent of a run, its controls and what needs no model; writes `output`; returns the scores by run."""
    dataset = ShardDataset(benchmark.shards, split=benchmark.split)
    output.mkdir(parents=True, exist_ok=True)
    gold = _predict(VlmAgent.from_run(checkpoint, bf16=bf16), dataset, benchmark, output, AGENT, console)
    scores = {AGENT: score(gold, benchmark.groups)}
    for name, senses in CONTROLS.items():
        agent = VlmAgent.from_run(checkpoint, bf16=bf16, **senses)
        scores[name] = score(_predict(agent, dataset, benchmark, output, name, console), benchmark.groups)
    scores[MOST_FREQUENT] = score(constant_predictions(gold, _commonest(benchmark)), benchmark.groups)
    scores[CEILING] = blind_ceiling(gold, benchmark.groups)
    (output / "metrics.json").write_text(json.dumps(scores, indent=2))
    facts = {"checkpoint": str(checkpoint), "shards": str(benchmark.shards), "split": benchmark.split}
    write_report(output / "report.html", scores, gold, dataset, facts)
    console.print(comparison_table(scores, title=f"{checkpoint} on {benchmark.split} of {benchmark.shards}"))
    return scores


def _predict(
    agent: VlmAgent, dataset: ShardDataset, benchmark: Benchmark, output: Path, name: str, console: Console
) -> list[Prediction]:
    """The agent's predictions; those of an earlier, finished evaluation are not made again."""
    path = output / ("predictions.parquet" if name == AGENT else f"predictions_{name}.parquet")
    count = len(dataset) if benchmark.limit is None else min(benchmark.limit, len(dataset))
    rows = [
        row
        for index in track(range(count), f"{name:13}", console=console)
        for row in answer_episode(agent, dataset[index])
    ]
    check_complete(rows, dataset.ids[:count])
    write_predictions(path, rows)
    return read_predictions(path)


def answer_episode(agent: VlmAgent, episode) -> list[Prediction]:
    """The agent's answers beside the gold steps."""
    answers = agent.answer_episode(episode)
    return predictions_for(episode, [answer.text for answer in answers], [answer.action for answer in answers])


def _commonest(benchmark: Benchmark):
    """The most frequent action of the training split: a policy may not be chosen on the data that scores it."""
    training = ShardDataset(benchmark.shards, split="train")
    return most_frequent_action(training.without_pixels(index) for index in range(len(training)))


def read_groups(path: Path | None) -> dict[str, list[str]]:
    """Groups of episodes to score apart, JSON: name → episode ids."""
    if path is None:
        return {}
    groups = json.loads(path.read_text())
    if not isinstance(groups, dict) or not all(isinstance(ids, list) for ids in groups.values()):
        raise ValueError(f"{path} must map each group's name to a list of episode ids")
    return groups


def summarise_groups(groups: Mapping[str, Iterable[str]]) -> str:
    return ", ".join(f"{name} ({len(list(ids))} episodes)" for name, ids in groups.items())
