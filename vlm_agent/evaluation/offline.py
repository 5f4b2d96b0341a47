"""Offline evaluation: an agent answers every step of recorded episodes, each from the history as demonstrated.

OUT/plan.json               what is evaluated; the same command again goes on where it was stopped
OUT/predictions.parquet     the agent; predictions_<run>.parquet beside it
OUT/metrics.json            every score of every run
OUT/report.html
OUT/parts/                  predictions on their way (see `parts.py`)
"""

import json
from pathlib import Path

from rich.console import Console

from vlm_agent.datasets import DatasetError, written_whole
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.episodes import Action
from vlm_agent.evaluation.baselines import blind_ceiling, constant_predictions, most_frequent_action
from vlm_agent.evaluation.dialects import named
from vlm_agent.evaluation.metrics import score
from vlm_agent.evaluation.parts import AGENT, Parts, Share, held
from vlm_agent.evaluation.plan import Benchmark, Plan, hold_to_plan, read_plan
from vlm_agent.evaluation.predict import CONTROLS, passes_of, predict
from vlm_agent.evaluation.predictions import Prediction, check_complete, read_predictions
from vlm_agent.evaluation.report import write_report
from vlm_agent.evaluation.sources import Source
from vlm_agent.evaluation.table import comparison_table
from vlm_agent.evaluation.verdicts import SCORERS
from vlm_agent.training.recipe import LanguageRecipe

__all__ = ["AGENT", "CEILING", "CONTROLS", "MOST_FREQUENT", "Benchmark", "evaluate", "finish"]

MOST_FREQUENT, CEILING = "most_frequent_action", "blind_ceiling"


def evaluate(
    source: Source,
    benchmark: Benchmark,
    output: Path,
    console: Console,
    controls: bool = True,
    constrained: bool = False,
    share: Share = Share(),  # noqa: B008 (frozen)
) -> dict[str, dict] | None:
    """Scores an agent, with `controls` also without its senses, `constrained` also kept to the action language, and
    what needs no model.

    Writes `output`, and returns the scores by run. What an earlier, interrupted run of the same evaluation predicted
    is kept; where all is predicted, it is scored again. With a `share` of a job array, only that share is predicted,
    the result is None, and `finish` does the rest.

    Raises DatasetError where the split has no episode or `output` holds another evaluation, ValueError where there is
    no such dialect, and what the source raises where there is no such agent.
    """
    named(benchmark.dialect)
    dataset, chosen = _episodes(benchmark)
    language = source.language.model_dump(mode="json")
    plan = Plan(source.described(), source.place, language, benchmark, passes_of(controls, constrained))
    hold_to_plan(output, plan)
    parts = Parts(output, chosen)
    with held(output, share):
        predict(source.load, plan.passes, dataset, parts, share, console)
        if share.count == 1:
            return _score(plan, dataset, parts, console)
    left = _left(plan, parts)
    console.print(f"Share {share.index} of {share.count} is predicted; {left} part(s) of all are not", highlight=False)
    return None


def finish(output: Path, console: Console) -> dict[str, dict]:
    """Merges what the tasks of a job array predicted, and scores it; DatasetError where some of it is not there."""
    plan = read_plan(output)
    dataset, chosen = _episodes(plan.benchmark)
    parts = Parts(output, chosen)
    with held(output, Share()):
        if left := _left(plan, parts):
            raise DatasetError(
                f"{left} part(s) in {output} are not predicted yet; wait for the tasks of the job array, or start "
                "those again that were stopped"
            )
        return _score(plan, dataset, parts, console)


def _episodes(benchmark: Benchmark) -> tuple[ShardDataset, list[int]]:
    dataset = ShardDataset(benchmark.shards, split=benchmark.split)
    chosen = benchmark.chosen(len(dataset))
    if not chosen:
        raise DatasetError(f"{benchmark.shards} has no episode in split {benchmark.split}, so nothing can be scored")
    return dataset, chosen


def _left(plan: Plan, parts: Parts) -> int:
    return sum(len(parts.missing(runs)) for runs in plan.passes)


def _score(plan: Plan, dataset: ShardDataset, parts: Parts, console: Console) -> dict[str, dict]:
    benchmark, output = plan.benchmark, parts.output
    scorers = tuple(dict.fromkeys((*SCORERS, benchmark.dialect)))
    about = {
        "benchmark": benchmark.name,
        "split": benchmark.split,
        "episodes": len(parts.chosen),
        "episodes_in_split": len(dataset),
    }
    scores = {}
    for run in plan.runs:
        path = parts.merge(run)
        scores[run] = score(path, benchmark.groups, scorers=scorers)
        scores[run]["about"] = about | {"settled_by_prefill": parts.share_settled(run)}
    gold = read_predictions(parts.merged_path(AGENT))
    check_complete(gold, [dataset.ids[index] for index in parts.chosen])
    scores |= {run: row | {"about": about} for run, row in _without_model(gold, benchmark, scorers, console).items()}
    with written_whole(output / "metrics.json") as part:
        part.write_text(json.dumps(scores, indent=2))
    language = LanguageRecipe(**plan.language).build()
    write_report(output / "report.html", scores, gold, dataset, _facts(plan, about), language=language)
    title = f"Partial match on {benchmark.split}, %: official, strict below"
    console.print(comparison_table(scores, title if benchmark.name is None else f"{benchmark.name}. {title}"))
    return scores


def _facts(plan: Plan, about: dict) -> dict[str, str]:
    """What heads the report."""
    named_ = {} if plan.benchmark.name is None else {"benchmark": plan.benchmark.name}
    return named_ | {
        "agent": plan.place,
        "shards": str(plan.benchmark.shards),
        "split": f"{about['split']}, {about['episodes']} of {about['episodes_in_split']} episodes",
    }


def _without_model(
    gold: list[Prediction], benchmark: Benchmark, scorers: tuple[str, ...], console: Console
) -> dict[str, dict]:
    scores = {}
    commonest = _commonest(benchmark)
    if commonest is None:
        console.print(f"{benchmark.shards} has no train split, so there is no {MOST_FREQUENT} to compare with")
    else:
        scores[MOST_FREQUENT] = score(constant_predictions(gold, commonest), benchmark.groups, scorers=scorers)
    return scores | {CEILING: blind_ceiling(gold, benchmark.groups)}


def _commonest(benchmark: Benchmark) -> Action | None:
    """The most frequent action of the training split: a policy may not be chosen on the data that scores it."""
    training = ShardDataset(benchmark.shards, split="train")
    if not len(training):
        return None
    return most_frequent_action(training.without_pixels(index) for index in range(len(training)))
