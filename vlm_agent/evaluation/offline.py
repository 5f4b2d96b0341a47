"""Offline evaluation: an agent answers every step of recorded episodes, each from the history as demonstrated.

OUT/predictions.parquet                 the agent; predictions_<control>.parquet beside it
OUT/metrics.json                        every score of every run
OUT/report.html
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.progress import track

from vlm_agent.agents.vlm import VlmAgent
from vlm_agent.datasets import DatasetError, written_whole
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.episodes import Action
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
CONTROLS = ("grey_screens", "no_history")
"""The agent with a sense taken away: how much of its score needs eyes, and how much needs memory."""

MOST_FREQUENT, CEILING = "most_frequent_action", "blind_ceiling"


@dataclass(frozen=True)
class Benchmark:
    """What is measured on what: the shards' `split`, extra `groups` of episode ids, and at most `limit` episodes.

    Those are spread evenly over the split, because shards hold one subset after the other.
    """

    shards: Path
    split: str
    groups: Mapping[str, list[str]] = field(default_factory=dict)
    limit: int | None = None

    def chosen(self, available: int) -> list[int]:
        """Which of the split's `available` episodes are scored."""
        count = available if self.limit is None else min(self.limit, available)
        return [number * available // count for number in range(count)]


def evaluate(
    checkpoint: Path,
    benchmark: Benchmark,
    output: Path,
    console: Console,
    bf16: bool = False,
    controls: bool = True,
) -> dict[str, dict]:
    """Scores the agent of a run, with `controls` also without its senses, and what needs no model.

    Writes `output`, over what an earlier evaluation left there, and returns the scores by run. Raises DatasetError
    where the split has no episode, and RecipeError or FileNotFoundError where `checkpoint` is no finished run.
    """
    dataset = ShardDataset(benchmark.shards, split=benchmark.split)
    chosen = benchmark.chosen(len(dataset))
    if not chosen:
        raise DatasetError(f"{benchmark.shards} has no episode in split {benchmark.split}, so nothing can be scored")
    output.mkdir(parents=True, exist_ok=True)
    scores = {}
    trained = VlmAgent.from_run(checkpoint, bf16=bf16)
    for name, agent in _agents(trained, controls):
        path = output / ("predictions.parquet" if name == AGENT else f"predictions_{name}.parquet")
        scores[name] = score(_predict(agent, dataset, chosen, path, f"{name:13}", console), benchmark.groups)
    gold = read_predictions(output / "predictions.parquet")
    scores |= _without_model(gold, benchmark, console)
    with written_whole(output / "metrics.json") as part:
        part.write_text(json.dumps(scores, indent=2))
    facts = {
        "checkpoint": str(checkpoint),
        "shards": str(benchmark.shards),
        "split": f"{benchmark.split}, {len(chosen)} of {len(dataset)} episodes",
    }
    write_report(output / "report.html", scores, gold, dataset, facts, language=trained.sentences.language)
    console.print(comparison_table(scores, title=f"Partial match on {benchmark.split}, %: official, strict below"))
    return scores


def _agents(agent: VlmAgent, controls: bool) -> Iterator[tuple[str, VlmAgent]]:
    """The agent and its controls by name; all share one model."""
    yield AGENT, agent
    if controls:
        blind = replace(agent, sentences=replace(agent.sentences, grey=True))
        yield from zip(CONTROLS, (blind, replace(agent, remember=False)), strict=True)


def _predict(
    agent: VlmAgent, dataset: ShardDataset, chosen: list[int], path: Path, name: str, console: Console
) -> list[Prediction]:
    """The agent's predictions on the `chosen` episodes, as they were written to `path`."""
    rows = [row for index in track(chosen, name, console=console) for row in _answer_episode(agent, dataset[index])]
    check_complete(rows, [dataset.ids[index] for index in chosen])
    write_predictions(path, rows)
    return read_predictions(path)


def _answer_episode(agent: VlmAgent, episode) -> list[Prediction]:
    """The agent's answers beside the gold steps."""
    answers = agent.answer_episode(episode)
    return predictions_for(episode, [answer.text for answer in answers], [answer.action for answer in answers])


def _without_model(gold: list[Prediction], benchmark: Benchmark, console: Console) -> dict[str, dict]:
    scores = {}
    commonest = _commonest(benchmark)
    if commonest is None:
        console.print(f"{benchmark.shards} has no train split, so there is no {MOST_FREQUENT} to compare with")
    else:
        scores[MOST_FREQUENT] = score(constant_predictions(gold, commonest), benchmark.groups)
    return scores | {CEILING: blind_ceiling(gold, benchmark.groups)}


def _commonest(benchmark: Benchmark) -> Action | None:
    """The most frequent action of the training split: a policy may not be chosen on the data that scores it."""
    training = ShardDataset(benchmark.shards, split="train")
    if not len(training):
        return None
    return most_frequent_action(training.without_pixels(index) for index in range(len(training)))


def read_groups(path: Path | None) -> dict[str, list[str]]:
    """Groups of episodes to score apart, JSON: name → episode ids; none where `path` is None.

    Raises DatasetError naming the file where it is something else.
    """
    if path is None:
        return {}
    try:
        groups = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DatasetError(f"{path} is no JSON: {error}") from None
    if not isinstance(groups, dict) or not all(isinstance(ids, list) for ids in groups.values()):
        raise DatasetError(f"{path} must map each group's name to a list of episode ids")
    return groups
