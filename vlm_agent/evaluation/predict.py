"""From a plan to the predictions of every run in it, a part at a time."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console

from vlm_agent.agents import Agent, Answer
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.episodes import Episode
from vlm_agent.evaluation.parts import AGENT, Parts, Share
from vlm_agent.evaluation.predictions import predictions_for
from vlm_agent.evaluation.progress import StepProgress

GREY_SCREENS, NO_HISTORY = CONTROLS = ("grey_screens", "no_history")
"""The agent with a sense taken away: how much of its score needs eyes, and how much needs memory."""

CONSTRAINED = "constrained"
"""The agent kept to the action language while it decodes; it shares its forward pass with the free one."""


def passes_of(controls: bool, constrained: bool) -> list[list[str]]:
    """The runs of an evaluation, those together that come out of one pass."""
    agent = [AGENT, CONSTRAINED] if constrained else [AGENT]
    return [agent, *([run] for run in CONTROLS if controls)]


def predict(
    load: Callable[[], Agent],
    passes: Sequence[Sequence[str]],
    dataset: ShardDataset,
    parts: Parts,
    share: Share,
    console: Console,
) -> None:
    """Makes every part of the share that is not there yet; loads the agent only where there is one to make."""
    missing = [(runs, number) for runs in passes for number in parts.missing(runs, share)]
    if not missing:
        return
    lengths = [len(sizes) for sizes in dataset.screen_sizes]
    steps = sum(lengths[index] for _, number in missing for index in parts.episodes(number))
    agent = load()
    with StepProgress(console, steps).shown() as progress:
        for (runs, number), episodes in _loaded(dataset, parts, missing):
            answers = _as(agent, runs[0]).answer_both_ways(episodes) if CONSTRAINED in runs else None
            by_run = answers if answers is not None else (_as(agent, runs[0]).answer_episodes(episodes),)
            # The first run last: a part of it says that those which came with it are there too.
            for run, answered in reversed(list(zip(runs, by_run, strict=True))):
                _write(parts, run, number, episodes, answered)
            progress.add(runs[0], sum(map(len, episodes)))


def _as(agent: Agent, run: str) -> Agent:
    return {GREY_SCREENS: agent.on_grey_screens, NO_HISTORY: agent.without_history}.get(run, lambda: agent)()


def _loaded(
    dataset: ShardDataset, parts: Parts, missing: list[tuple[Sequence[str], int]]
) -> Iterator[tuple[tuple[Sequence[str], int], list[Episode]]]:
    """Each part to make, with its episodes; the next ones are decoded meanwhile."""

    def load(number: int) -> list[Episode]:
        return [dataset[index] for index in parts.episodes(number)]

    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(load, missing[0][1])
        for at, part in enumerate(missing):
            episodes = coming.result()
            if at + 1 < len(missing):
                coming = pool.submit(load, missing[at + 1][1])
            yield part, episodes


def _write(parts: Parts, run: str, number: int, episodes: list[Episode], answered: list[list[Answer]]) -> None:
    rows = [
        row
        for episode, answers in zip(episodes, answered, strict=True)
        for row in predictions_for(episode, [one.text for one in answers], [one.action for one in answers])
    ]
    settled = [one.settled for answers in answered for one in answers]
    parts.write(run, number, rows, None if None in settled else sum(settled))
