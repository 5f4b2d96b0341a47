"""Offline evaluation: an agent answers every step of recorded episodes, each after its demonstrated history.

OUT/plan.json               settings; run the same command again to resume
OUT/predictions.parquet     the agent's answers; predictions_<run>.parquet for its variants and controls
OUT/metrics.json            every score of every run
OUT/report.html
OUT/parts/                  predictions during the evaluation (see `parts.py`)
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.agents import AgentSettings, NoAnswerError
from vlm_agent.agents.controls import controls_of
from vlm_agent.agents.llm.client import retry_advice
from vlm_agent.agents.loading import load_agent
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Action
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.costs import cost_per_episode
from vlm_agent.evaluation.identity import AGENT, agent_identity, controls_fact, elements_fact, names_in_tables
from vlm_agent.evaluation.offline.answer_counts import LISTED
from vlm_agent.evaluation.offline.baselines import (
    blind_ceiling,
    constant_predictions,
    most_frequent_action,
    taps_on_no_element,
    written_in,
)
from vlm_agent.evaluation.offline.parts import Parts, lock_output
from vlm_agent.evaluation.offline.plan import METRICS, TEXTS, Plan, job, read_plan, update_plan, write_or_verify_plan
from vlm_agent.evaluation.offline.predict import passes_of, predict
from vlm_agent.evaluation.offline.text_origins import text_origins
from vlm_agent.evaluation.offline.trained_on import trained_on, trained_on_fact
from vlm_agent.evaluation.predictions import Prediction, read_predictions
from vlm_agent.evaluation.published_split import compare_split, is_published_data
from vlm_agent.evaluation.report import write_report
from vlm_agent.evaluation.report.published import has_published_numbers, published_tables, split_sentences
from vlm_agent.evaluation.report.terminal import aitz_tables, comparison_table, cost_tables
from vlm_agent.evaluation.report.unread import example_line, parse_failure_table
from vlm_agent.evaluation.scoring.judged import JudgedSteps, judge_steps
from vlm_agent.evaluation.scoring.metrics import check_group_names, score
from vlm_agent.files.checked_json import write_checked
from vlm_agent.files.jobs import ArrayTask, free_after_errors
from vlm_agent.screens.understand import Readers

__all__ = ["AGENT", "CEILING", "MOST_FREQUENT", "NEAREST_ELEMENT", "evaluate", "finish"]

MOST_FREQUENT, CEILING = "most_frequent_action", "blind_ceiling"
NEAREST_ELEMENT = "nearest_element"
"""The gold action as the agent's language writes it, if that numbers elements: always the nearest element."""


def evaluate(
    settings: AgentSettings,
    benchmark: Benchmark,
    output: Path,
    console: Console,
    controls: bool | Sequence[str] = True,
    variants: Sequence[str] = (),
    task: ArrayTask = ArrayTask(),  # noqa: B008 (frozen)
    workers: int | None = 0,
    readers: Readers | None = None,
) -> dict[str, dict] | None:
    """Scores an agent, its `variants`, the agent under `controls` (all, none or those named), and baselines without
    a model.

    Writes to `output` and returns the scores by run. Predictions of an interrupted evaluation are kept; complete
    predictions are scored again, by the scorers and groups of `benchmark`. One `task` of a job array only predicts and
    returns None; `finish` merges and scores. `workers` processes prepare screens, and predictions do not depend on
    their number; None: as many as suit agent and cores. `readers`: the agent's elements are read from pixels; scores
    are still by those of the data set.

    Raises DatasetError if the split has no episode, a group has a subset's name, or `output` holds another evaluation,
    an error of the agent's settings if the agent does not exist, UserError for `workers` that it cannot use, and at the
    end NoAnswerError if the agent failed to answer steps: they count as wrong, and the next evaluation into `output`
    requests them again.
    """
    benchmark = benchmark.model_copy(update={"groups": benchmark.episode_groups()})
    dataset, chosen = episodes_of(benchmark)
    check_group_names(benchmark.episode_groups(), dataset.subsets)
    chosen_controls = controls_of(settings.text_inputs, controls)
    passes = passes_of(chosen_controls, variants)
    plan = Plan(
        agent_identity(settings, readers, chosen_controls),
        settings.display_name,
        benchmark,
        passes,
        settings.text_notes,
        settings.run_label,
        trained_on(settings, (dataset.ids[index] for index in chosen)),
    )
    write_or_verify_plan(output, plan)
    parts = Parts(output, chosen)
    with free_after_errors(job(output)), lock_output(output, task):
        update_plan(output, plan)
        predict(
            partial(load_agent, settings.in_output(output), console, readers),
            plan.passes,
            dataset,
            parts,
            task,
            console,
            workers,
            plan.label,
        )
        if task.count == 1:
            return _score(plan, dataset, parts, console)
        failed = sum(len(parts.incomplete(runs, task)) for runs in plan.passes)
    missing = _count_missing(plan, parts)
    console.print(
        f"Task {task.index} of {task.count} is complete; {missing} part(s) of all tasks are missing", highlight=False
    )
    if failed:
        raise NoAnswerError(
            f"the agent could not answer steps in {failed} part(s) of this task; they count as wrong unless the same "
            "command is run again"
        )
    return None


def finish(output: Path, console: Console) -> dict[str, dict]:
    """Merges and scores the predictions of a job array. Raises DatasetError if some are missing."""
    plan = read_plan(output)
    dataset, chosen = episodes_of(plan.benchmark)
    parts = Parts(output, chosen)
    with lock_output(output, ArrayTask()):
        if missing := _count_missing(plan, parts):
            raise DatasetError(
                f"{missing} part(s) in {output} are not predicted yet; wait for the tasks of the job array, or restart "
                "those that were stopped"
            )
        return _score(plan, dataset, parts, console)


def episodes_of(benchmark: Benchmark) -> tuple[ShardDataset, list[int]]:
    """The split of a benchmark, and the indices of the scored episodes. Raises DatasetError without one."""
    dataset = ShardDataset(benchmark.shards, split=benchmark.split)
    chosen = benchmark.episode_indices(dataset.ids, dataset.subsets)
    if not chosen:
        raise DatasetError(
            f"{benchmark.shards} has no episode in split {benchmark.split}; choose another split with --split, or "
            "convert with --splits FILE, which names the split of each episode"
        )
    return dataset, chosen


def _count_missing(plan: Plan, parts: Parts) -> int:
    return sum(len(parts.missing(runs)) for runs in plan.passes)


def _score(plan: Plan, dataset: ShardDataset, parts: Parts, console: Console) -> dict[str, dict]:
    benchmark, output = plan.benchmark, parts.output
    scorers = benchmark.scorers
    about = about_episodes(benchmark, dataset, parts.chosen)
    scores: dict[str, dict] = {}
    agent_steps: JudgedSteps | None = None
    for run in plan.runs:
        path = parts.merge(run)
        steps = judge_steps(path, scorers)
        steps.check_episodes([dataset.ids[index] for index in parts.chosen], path)
        agent_steps = steps if run == AGENT else agent_steps
        scores[run] = score(steps, benchmark.episode_groups(), scorers=scorers)
        if cost := cost_per_episode(parts.merged_path(run)):
            scores[run]["cost"] = cost
        scores[run]["about"] = about | _about_training(plan) | parts.counts(run).in_metrics()
    if texts := _origins_of_texts(plan, dataset, parts):
        scores[AGENT]["about"][TEXTS] = texts
    gold, counts = read_predictions(parts.merged_path(AGENT)), parts.counts(AGENT)
    scores |= {run: row | {"about": about} for run, row in _without_model(gold, benchmark, scorers, console).items()}
    reach = _reach(gold, plan.language(), benchmark, bool(elements_fact(plan.agent)))
    scores |= {run: row | {"about": about | row["about"]} for run, row in reach.items()}
    write_checked(output / METRICS, scores, indent=2)
    shown = {name: scores[run] for run, name in names_in_tables(scores, plan.label).items()}
    write_report(
        output / "report.html",
        shown,
        gold,
        dataset,
        {
            **_facts(plan, about),
            **controls_fact(plan.agent, plan.runs),
            **texts,
            **counts.facts(),
            **_reach_fact(reach),
        },
        title=_title(plan),
        judged=agent_steps,
        language=plan.language(),
    )
    title = f"Partial match on {benchmark.split}, %: official, strict below"
    _report_unwritable(counts.unwritable, console)
    console.print(comparison_table(shown, title if benchmark.name is None else f"{benchmark.name}. {title}"))
    for table in (*aitz_tables(shown), *cost_tables(shown)):
        console.print(table)
    _report_published_split(about, console)
    _report_parse_failures(plan, scores, gold, console)
    shown_facts = [trained_on_fact(plan.trained_on, about["episodes"])]
    shown_facts += [elements_fact(plan.agent), controls_fact(plan.agent, plan.runs)]
    shown_facts += [counts.printed_facts(), _reach_fact(reach)]
    for fact, text in (pair for facts in shown_facts for pair in facts.items()):
        console.print(f"{fact}: {text}", highlight=False, markup=False, soft_wrap=True)
    _raise_for_failed({run: parts.counts(run).failed for run in plan.runs})
    return scores


def about_episodes(benchmark: Benchmark, dataset: ShardDataset, chosen: Sequence[int]) -> dict[str, Any]:
    """What metrics record of the scored episodes; `published_split` only for a benchmark with published numbers,
    and data of that kind."""
    about = {
        "benchmark": benchmark.name,
        "split": benchmark.split,
        "episodes": len(chosen),
        "episodes_in_split": len(dataset),
    }
    if not has_published_numbers(benchmark.name) or not is_published_data(dataset):
        return about
    return about | {"published_split": compare_split(benchmark.published_split, dataset, chosen)}


def _report_published_split(about: dict[str, Any], console: Console) -> None:
    if "published_split" in about:
        text = " ".join(split_sentences(published_tables(), about))
        console.print(f"Published numbers: {text.strip()}", highlight=False, markup=False, soft_wrap=True)


def _about_training(plan: Plan) -> dict[str, Any]:
    return {"trained_on": plan.trained_on} if plan.trained_on else {}


def _report_parse_failures(plan: Plan, scores: dict[str, dict], gold: list[Prediction], console: Console) -> None:
    names = names_in_tables(plan.runs, plan.label)
    console.print(parse_failure_table({name: scores[run] for run, name in names.items()}))
    if line := example_line(plan.label, scores[AGENT], gold, plan.language()):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _raise_for_failed(lines: dict[str, list[str]]) -> None:
    failed = [line for of_run in lines.values() for line in of_run]
    if failed:
        advice = retry_advice(failed, "run the same command again to request these answers")
        raise NoAnswerError(
            f"the agent could not answer {len(failed)} step(s); first error: {failed[0]}; they count as wrong and are "
            f"listed in metrics.json (failed_steps); {advice}"
        )


def _report_unwritable(lines: Sequence[str], console: Console) -> None:
    if lines:
        head = f"The agent's tokenizer cannot write {len(lines):,} demonstrated actions, so no answer equals them; "
        text = "\n".join([f"{head}metrics.json lists the first {LISTED}:", *(f"  {line}" for line in lines[:5])])
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def _origins_of_texts(plan: Plan, dataset: ShardDataset, parts: Parts) -> dict[str, str]:
    return text_origins(dataset, parts.chosen, plan.agent.get("text_inputs", ())) | plan.text_notes


def _title(plan: Plan) -> str:
    """The title of the page, which distinguishes the tabs of a browser."""
    benchmark = plan.benchmark
    place = f" – {plan.place}" if plan.place != plan.label else ""
    return f"{plan.label} on {benchmark.name or f'{benchmark.shards.name} {benchmark.split}'}{place}"


def _facts(plan: Plan, about: dict) -> dict[str, str]:
    """The facts at the top of the report."""
    benchmark = {} if plan.benchmark.name is None else {"benchmark": plan.benchmark.name}
    return benchmark | {
        "agent": plan.place,
        **elements_fact(plan.agent),
        "shards": str(plan.benchmark.shards),
        "split": f"{about['split']}, {about['episodes']} of {about['episodes_in_split']} episodes",
        **trained_on_fact(plan.trained_on, about["episodes"]),
    }


def _reach(
    gold: list[Prediction], language: ActionLanguage, benchmark: Benchmark, elements_are_read: bool
) -> dict[str, dict]:
    """The score of the gold actions in a language that numbers elements, with the taps that it cannot write.

    Empty where the agent numbers elements that are read from pixels: `gold` has those of the data set.
    """
    if not language.needs_elements or elements_are_read:
        return {}
    scores = score(written_in(language, gold), benchmark.episode_groups(), scorers=benchmark.scorers)
    return {NEAREST_ELEMENT: scores | {"about": {"gold_taps": taps_on_no_element(gold)}}}


def _reach_fact(reach: dict[str, dict]) -> dict[str, str]:
    if not reach:
        return {}
    counts = reach[NEAREST_ELEMENT]["about"]["gold_taps"]
    taps, beside = counts["taps"], counts["on_no_element"]
    share = f" ({100 * beside / taps:.1f} %)" if taps else ""
    return {
        "taps on no element": f"{beside:,} of {taps:,} demonstrated ones{share}: this action language can only write "
        "the nearest element; the run nearest element is the score of all demonstrated actions as it writes them"
    }


def _without_model(
    gold: list[Prediction], benchmark: Benchmark, scorers: tuple[str, ...], console: Console
) -> dict[str, dict]:
    scores: dict[str, dict] = {}
    groups = benchmark.episode_groups()
    most_frequent = _most_frequent(benchmark)
    if most_frequent is None:
        console.print(f"{benchmark.shards} has no train split, so the baseline {MOST_FREQUENT} is skipped")
    else:
        scores[MOST_FREQUENT] = score(constant_predictions(gold, most_frequent), groups, scorers=scorers)
    return scores | {CEILING: blind_ceiling(gold, groups)}


def _most_frequent(benchmark: Benchmark) -> Action | None:
    """The most frequent action of the train split: a policy must not be chosen on the data that scores it."""
    training = ShardDataset(benchmark.shards, split="train")
    if not len(training):
        return None
    return most_frequent_action(training.without_pixels(index) for index in range(len(training)))
