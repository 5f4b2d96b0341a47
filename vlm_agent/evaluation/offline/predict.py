"""Predicts every run of a plan, part by part."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

from rich.console import Console

from vlm_agent.agents import Agent, Answer, answer_episodes
from vlm_agent.agents.agent import JudgedAgent, Preparation, PreparingAgent, preparation_of
from vlm_agent.agents.controls import CONTROLS, controlled
from vlm_agent.agents.loading import reported_spending
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode
from vlm_agent.errors import UserError
from vlm_agent.evaluation.identity import AGENT, names_in_tables
from vlm_agent.evaluation.offline.answer_counts import AnswerCounts
from vlm_agent.evaluation.offline.loading import LoadedPart, PartWork, default_workers, loaded_parts
from vlm_agent.evaluation.offline.parts import Parts
from vlm_agent.evaluation.predictions import predictions_for
from vlm_agent.evaluation.scoring.dialects import is_officially_right
from vlm_agent.files.console import Progress
from vlm_agent.files.jobs import ArrayTask

SAMPLE = 3
"""Episodes whose steps an estimate of the cost is computed from."""


def passes_of(controls: Sequence[str], variants: Sequence[str] = ()) -> list[list[str]]:
    """The runs of an evaluation, grouped by pass: variants share the agent's pass, every control has its own."""
    return [[AGENT, *variants], *([run] for run in controls)]


def predict(
    load: Callable[[], Agent],
    passes: Sequence[Sequence[str]],
    dataset: ShardDataset,
    parts: Parts,
    task: ArrayTask,
    console: Console,
    workers: int | None = 0,
    label: str = AGENT,
) -> None:
    """Predicts the missing parts of the task; loads the agent only if a part is missing.

    All passes over a part run one after the other, so its screens are decoded once. `workers` processes decode and
    prepare screens, for an agent that allows it (`PreparingAgent`); 0: this process does; None: as many as suit agent
    and cores. A step that the agent failed to answer is a wrong answer, and its part is predicted again by the next
    evaluation. `label`: the agent's own run in the progress line. Raises UserError for `workers` of an agent that
    cannot use them.
    """
    missing_by_pass = [(runs, set(parts.incomplete(runs, task))) for runs in passes]
    numbers = sorted({number for _, missing in missing_by_pass for number in missing})
    todo = {number: [runs for runs, missing in missing_by_pass if number in missing] for number in numbers}
    if not todo:
        return
    lengths = [len(sizes) for sizes in dataset.screen_sizes]
    steps = sum(len(runs) * lengths[index] for number, runs in todo.items() for index in parts.episodes(number))
    agent = load()
    if isinstance(agent, JudgedAgent):
        agent = agent.judged_by(is_officially_right)
    by_pass = {runs[0]: _under_control(agent, runs[0]) for runs in passes}
    work = [PartWork(number, parts.episodes(number), tuple(runs[0] for runs in todo[number])) for number in numbers]
    preparations = {first: preparation_of(pass_agent) for first, pass_agent in by_pass.items()}
    sample = partial(_sample, dataset, parts.episodes(numbers[0]))
    # The processes start before the thread of the progress bar.
    with (
        reported_spending(agent, console, sample, steps),
        loaded_parts(dataset, work, preparations, _workers(workers, preparations)) as loaded,
        Progress(console, steps).shown() as progress,
    ):
        for part in loaded:
            for runs in todo[part.number]:
                _predict_part(by_pass[runs[0]], runs, parts, part)
                progress.advance(sum(map(len, part.episodes)), names_in_tables(runs, label)[runs[0]])


def _workers(chosen: int | None, preparations: Mapping[str, Preparation | None]) -> int:
    are_used = None not in preparations.values()
    if chosen is None:
        return default_workers() if are_used else 0
    if chosen and not are_used:
        raise UserError(f"--workers {chosen} has no effect: this agent prepares no screens in processes; remove it")
    return chosen


def _sample(dataset: ShardDataset, indices: Sequence[int]) -> list[Episode]:
    return [dataset[index] for index in indices[:SAMPLE]]


def _under_control(agent: Agent, run: str) -> Agent:
    return controlled(agent, CONTROLS[run]) if run in CONTROLS else agent


def _predict_part(agent: Agent, runs: Sequence[str], parts: Parts, part: LoadedPart) -> None:
    """Runs one pass over a part."""
    first, *variants = runs
    prepared = part.prepared.get(first)
    if prepared is None:
        by_run = answer_episodes(agent, part.episodes, variants)
    else:
        by_run = cast("PreparingAgent", agent).answer_prepared(prepared, variants)
    # The first run is written last: its file marks the whole pass as complete.
    for run, answers_by_episode in reversed(list(zip(runs, by_run, strict=True))):
        _write(parts, run, part.number, part.episodes, answers_by_episode)


def _write(
    parts: Parts, run: str, number: int, episodes: list[Episode], answers_by_episode: list[list[Answer]]
) -> None:
    rows = [
        row
        for episode, answers in zip(episodes, answers_by_episode, strict=True)
        for row in predictions_for(
            episode,
            [one.text for one in answers],
            [one.action for one in answers],
            [one.usage for one in answers],
            [one.box for one in answers],
        )
    ]
    parts.write(run, number, rows, AnswerCounts.of(episodes, answers_by_episode))
