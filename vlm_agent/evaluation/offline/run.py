"""Offline evaluation, top to bottom: predict, judge, score, write.

An agent answers every step of recorded episodes, each after its demonstrated history.

OUT/plan.json               settings; run the same command again to resume
OUT/predictions.parquet     the agent's answers; predictions_<run>.parquet for its controls
OUT/metrics.json            every score of every run
OUT/report.html
OUT/parts/                  predictions during the evaluation (see `parts.py`)
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from vlm_agent.agents import Agent, AgentSettings, Answer, NoAnswerError
from vlm_agent.agents.agent import Preparation
from vlm_agent.agents.controls import CONTROLS, controlled, controls_of
from vlm_agent.agents.loading import load_agent, reported_spending
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import DatasetError, UserError
from vlm_agent.evaluation.about import (
    AGENT,
    about_episodes,
    agent_identity,
    elements_fact,
    names_in_tables,
    text_origins,
    trained_on,
)
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.offline.baselines import CEILING, MOST_FREQUENT, NEAREST_ELEMENT, reach, without_model
from vlm_agent.evaluation.offline.loading import LoadedPart, PartWork, default_workers, loaded_parts
from vlm_agent.evaluation.offline.parts import AnswerCounts, Parts, lock_output
from vlm_agent.evaluation.offline.plan import METRICS, TEXTS, Plan, job, other_settings, read_plan, update_plan
from vlm_agent.evaluation.offline.results import Results, raise_for_failed
from vlm_agent.evaluation.predictions import Prediction, cost_per_episode, cost_per_step, predictions_for
from vlm_agent.evaluation.scoring.dialects import is_officially_right
from vlm_agent.evaluation.scoring.judged import check_group_names, judge_steps
from vlm_agent.evaluation.scoring.metrics import score
from vlm_agent.files import write_checked
from vlm_agent.files.console import Progress
from vlm_agent.files.jobs import ArrayTask, free_after_errors
from vlm_agent.screens.understand import Readers

__all__ = ["AGENT", "CEILING", "MOST_FREQUENT", "NEAREST_ELEMENT", "evaluate", "finish"]

SAMPLE = 3
"""Episodes whose steps an estimate of the cost is computed from."""


def evaluate(
    settings: AgentSettings,
    benchmark: Benchmark,
    output: Path,
    console: Console,
    controls: bool | Sequence[str] = True,
    task: ArrayTask = ArrayTask(),  # noqa: B008 (frozen)
    workers: int | None = 0,
    readers: Readers | None = None,
) -> dict[str, dict] | None:
    """Scores an agent, the agent under `controls` (all, none or those named), and baselines without a model.

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
    plan = Plan(
        agent_identity(settings, readers, chosen_controls),
        settings.display_name,
        benchmark,
        [AGENT, *chosen_controls],
        settings.text_notes,
        settings.run_label,
        trained_on(settings, (dataset.ids[index] for index in chosen)),
    )
    job(output).write_or_verify_plan({"described": plan.identity(), "given": other_settings(plan)})
    parts = Parts(output, chosen)
    with free_after_errors(job(output)), lock_output(output, task):
        update_plan(output, plan)
        load = partial(load_agent, settings.in_output(output), console, readers)
        predict(load, plan.runs, dataset, parts, task, console, workers, plan.label)
        if task.count == 1:
            return _score(plan, dataset, parts, console, "run the same command again to request these answers")
        _end_task(plan, parts, task, console)
    return None


def _end_task(plan: Plan, parts: Parts, task: ArrayTask, console: Console) -> None:
    """Reports the parts that are left. Raises NoAnswerError for unanswered steps of this task."""
    task.report(console, sum(len(parts.missing(run)) for run in plan.runs), "part(s)")
    if failed := sum(len(parts.incomplete(run, task)) for run in plan.runs):
        raise NoAnswerError(
            f"the agent could not answer steps in {failed} part(s) of this task; they count as wrong unless the same "
            "command is run again"
        )


def finish(output: Path, console: Console) -> dict[str, dict]:
    """Merges and scores the predictions of a job array. Raises DatasetError if some are missing."""
    plan = read_plan(output)
    dataset, chosen = episodes_of(plan.benchmark)
    parts = Parts(output, chosen)
    with lock_output(output, ArrayTask()):
        if missing := sum(len(parts.missing(run)) for run in plan.runs):
            raise DatasetError(
                f"{missing} part(s) in {output} are not predicted yet; wait for the tasks of the job array, or restart "
                "those that were stopped"
            )
        again = "run the tasks of the job array again, then --finish, to request these answers"
        return _score(plan, dataset, parts, console, again)


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


def predict(
    load: Callable[[], Agent],
    runs: Sequence[str],
    dataset: ShardDataset,
    parts: Parts,
    task: ArrayTask,
    console: Console,
    workers: int | None = 0,
    label: str = AGENT,
) -> None:
    """Predicts the missing parts of the task; loads the agent only if a part is missing.

    All runs answer a part one after the other, so its screens are decoded once. `workers` processes decode and
    prepare screens, for an agent with a `preparation`; 0: this process does; None: as many as suit agent
    and cores. A step that the agent failed to answer is a wrong answer, and its part is predicted again by the next
    evaluation. `label`: the agent's own run in the progress line. Raises UserError for `workers` of an agent that
    cannot use them.
    """
    missing = {run: set(parts.incomplete(run, task)) for run in runs}
    numbers = sorted(set().union(*missing.values()))
    if not numbers:
        return
    work = [
        PartWork(number, parts.episodes(number), tuple(run for run in runs if number in missing[run]))
        for number in numbers
    ]
    lengths = [len(sizes) for sizes in dataset.screen_sizes]
    steps = sum(len(part.runs) * lengths[index] for part in work for index in part.episodes)
    agent = load().judged_by(is_officially_right)
    agents = {run: controlled(agent, CONTROLS[run]) if run in CONTROLS else agent for run in runs}
    preparations = {run: one.preparation() for run, one in agents.items()}
    names, first_episodes = names_in_tables(runs, label), work[0].episodes[:SAMPLE]
    # The processes start before the thread of the progress bar.
    with (
        reported_spending(agent, console, lambda: [dataset[index] for index in first_episodes], steps),
        loaded_parts(dataset, work, preparations, _workers(workers, preparations)) as loaded,
        Progress(console, steps).shown() as progress,
    ):
        for part, of_part in zip(loaded, work, strict=True):
            for run in of_part.runs:
                one, prepared = agents[run], part.prepared.get(run)
                answers = one.answer_episodes(part.episodes) if prepared is None else one.answer_prepared(prepared)
                parts.write(run, part.number, list(_rows(part, answers)), AnswerCounts.of(part.episodes, answers))
                progress.advance(sum(map(len, part.episodes)), names[run])


def _workers(chosen: int | None, preparations: Mapping[str, Preparation | None]) -> int:
    are_used = None not in preparations.values()
    if chosen is None:
        return default_workers() if are_used else 0
    if chosen and not are_used:
        raise UserError(f"--workers {chosen} has no effect: this agent prepares no screens in processes; remove it")
    return chosen


def _rows(part: LoadedPart, answers_by_episode: Sequence[Sequence[Answer]]) -> Iterator[Prediction]:
    for episode, answers in zip(part.episodes, answers_by_episode, strict=True):
        columns = ([getattr(one, name) for one in answers] for name in ("text", "action", "usage", "box"))
        yield from predictions_for(episode, *columns)


def _score(plan: Plan, dataset: ShardDataset, parts: Parts, console: Console, again: str) -> dict[str, dict]:
    """Judges, scores and reports every run. Returns the scores by run. `again`: what to do about unanswered steps."""
    benchmark, scorers = plan.benchmark, plan.benchmark.scorers
    judged = {run: judge_steps(parts.merge(run), scorers) for run in plan.runs}
    about = about_episodes(benchmark, dataset, parts.chosen)
    training = {"trained_on": plan.trained_on} if plan.trained_on else {}
    scores: dict[str, dict] = {}
    for run, steps in judged.items():
        steps.check_episodes([dataset.ids[index] for index in parts.chosen], parts.merged_path(run))
        scores[run] = score(steps, benchmark.episode_groups(), scorers=scorers)
        if cost := cost_per_episode(parts.merged_path(run)):
            scores[run] |= {"cost": cost, "cost_a_step": cost_per_step(parts.merged_path(run))}
        scores[run]["about"] = about | training | parts.counts(run).in_metrics()
    if texts := text_origins(dataset, parts.chosen, plan.agent.get("text_inputs", ())) | plan.text_notes:
        scores[AGENT]["about"][TEXTS] = texts
    gold = parts.merged_path(AGENT)
    baselines = without_model(gold, benchmark, console)
    if not elements_fact(plan.agent):  # an agent that reads elements from pixels numbers others than the data set
        baselines |= reach(gold, plan.language(), benchmark)
    scores |= {run: row | {"about": about | row.get("about", {})} for run, row in baselines.items()}
    write_checked(parts.output / METRICS, scores, indent=2)
    results = Results(plan, scores, gold, judged[AGENT], parts.counts(AGENT))
    results.write(dataset, parts)
    results.print(console)
    raise_for_failed([line for run in plan.runs for line in parts.counts(run).failed], again)
    return scores
