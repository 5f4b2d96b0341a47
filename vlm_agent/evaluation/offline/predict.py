"""Predicts every run of a plan, part by part."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console

from vlm_agent.agents import Agent, Answer, NoAnswerError, answer_episodes
from vlm_agent.agents.controls import CONTROLS, ControlledAgent
from vlm_agent.console import Progress
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode
from vlm_agent.evaluation.identity import AGENT
from vlm_agent.evaluation.offline.parts import Parts
from vlm_agent.evaluation.predictions import predictions_for
from vlm_agent.jobs import ArrayTask
from vlm_agent.sentences.trajectory import unwritable_line


def passes_of(controls: bool, variants: Sequence[str] = ()) -> list[list[str]]:
    """The runs of an evaluation, grouped by pass: variants share the agent's pass, every control has its own."""
    return [[AGENT, *variants], *([run] for run in CONTROLS if controls)]


def predict(
    load: Callable[[], Agent],
    passes: Sequence[Sequence[str]],
    dataset: ShardDataset,
    parts: Parts,
    task: ArrayTask,
    console: Console,
) -> None:
    """Predicts the missing parts of the task; loads the agent only if a part is missing.

    All passes over a part run one after the other, so its screens are decoded once. Raises NoAnswerError at the end if
    the agent failed to answer steps; their parts are not written.
    """
    missing_by_pass = [(runs, set(parts.missing(runs, task))) for runs in passes]
    numbers = sorted({number for _, missing in missing_by_pass for number in missing})
    todo = {number: [runs for runs, missing in missing_by_pass if number in missing] for number in numbers}
    if not todo:
        return
    lengths = [len(sizes) for sizes in dataset.screen_sizes]
    steps = sum(len(runs) * lengths[index] for number, runs in todo.items() for index in parts.episodes(number))
    agent, failures = load(), list[str]()
    with Progress(console, steps).shown() as progress:
        for number, episodes in _prefetch(dataset, parts, numbers):
            for runs in todo[number]:
                failures += _predict_part(agent, runs, parts, number, episodes)
                progress.advance(sum(map(len, episodes)), runs[0].replace("_", " "))
    if failures:
        raise NoAnswerError(
            f"the agent could not answer {len(failures)} step(s); first error: {failures[0]}; run the same command "
            "again to request these answers"
        )


def _predict_part(agent: Agent, runs: Sequence[str], parts: Parts, number: int, episodes: list[Episode]) -> list[str]:
    """Runs one pass over a part. Returns the reasons why steps were not answered; if any, nothing is written."""
    first, *variants = runs
    pass_agent = ControlledAgent(agent, CONTROLS[first]) if first in CONTROLS else agent
    by_run = answer_episodes(pass_agent, episodes, variants)
    failures = [one.failed for run in by_run for answers in run for one in answers if one.failed is not None]
    if failures:
        return failures
    # The first run is written last: its file marks the whole pass as complete.
    for run, answers_by_episode in reversed(list(zip(runs, by_run, strict=True))):
        _write(parts, run, number, episodes, answers_by_episode)
    return []


def _prefetch(dataset: ShardDataset, parts: Parts, numbers: list[int]) -> Iterator[tuple[int, list[Episode]]]:
    """Each part with its episodes, while the next part is decoded in the background."""

    def load(number: int) -> list[Episode]:
        return [dataset[index] for index in parts.episodes(number)]

    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(load, numbers[0])
        for position, number in enumerate(numbers, 1):
            episodes = following.result()
            if position < len(numbers):
                following = pool.submit(load, numbers[position])
            yield number, episodes


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
        )
    ]
    unwritable = [
        unwritable_line(episode.id, index, step.action)
        for episode, answers in zip(episodes, answers_by_episode, strict=True)
        for index, (step, answer) in enumerate(zip(episode.steps, answers, strict=True))
        if answer.unwritable
    ]
    parts.write(run, number, rows, unwritable)
