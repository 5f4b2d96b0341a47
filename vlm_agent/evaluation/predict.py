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
    """Makes every part of the share that is not there yet; loads the agent only where there is one to make.

    Part by part, all its passes one after the other: its screens are decoded once.
    """
    lacking = [(runs, set(parts.missing(runs, share))) for runs in passes]
    numbers = sorted(set().union(*(lacks for _, lacks in lacking)))
    missing = {number: [runs for runs, lacks in lacking if number in lacks] for number in numbers}
    if not missing:
        return
    lengths = [len(sizes) for sizes in dataset.screen_sizes]
    steps = sum(len(made) * lengths[index] for number, made in missing.items() for index in parts.episodes(number))
    agent = load()
    with StepProgress(console, steps).shown() as progress:
        for number, episodes in _loaded(dataset, parts, list(missing)):
            for runs in missing[number]:
                _make(agent, runs, parts, number, episodes)
                progress.add(runs[0], sum(map(len, episodes)))


def _make(agent: Agent, runs: Sequence[str], parts: Parts, number: int, episodes: list[Episode]) -> None:
    """One pass over a part."""
    one = _as(agent, runs[0])
    by_run = one.answer_both_ways(episodes) if CONSTRAINED in runs else (one.answer_episodes(episodes),)
    # The first run last: a part of it says that those which came with it are there too.
    for run, answered in reversed(list(zip(runs, by_run, strict=True))):
        _write(parts, run, number, episodes, answered)


def _as(agent: Agent, run: str) -> Agent:
    return {GREY_SCREENS: agent.on_grey_screens, NO_HISTORY: agent.without_history}.get(run, lambda: agent)()


def _loaded(dataset: ShardDataset, parts: Parts, numbers: list[int]) -> Iterator[tuple[int, list[Episode]]]:
    """Each part, with its episodes; the next ones are decoded meanwhile."""

    def load(number: int) -> list[Episode]:
        return [dataset[index] for index in parts.episodes(number)]

    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(load, numbers[0])
        for at, number in enumerate(numbers):
            episodes = coming.result()
            if at + 1 < len(numbers):
                coming = pool.submit(load, numbers[at + 1])
            yield number, episodes


def _write(parts: Parts, run: str, number: int, episodes: list[Episode], answered: list[list[Answer]]) -> None:
    rows = [
        row
        for episode, answers in zip(episodes, answered, strict=True)
        for row in predictions_for(episode, [one.text for one in answers], [one.action for one in answers])
    ]
    settled = [one.settled for answers in answered for one in answers]
    parts.write(run, number, rows, None if None in settled else sum(settled))
