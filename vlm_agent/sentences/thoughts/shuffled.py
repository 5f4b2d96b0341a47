"""The control `shuffled_results`: each step reads the result of another action than the previous one."""

import random
from collections.abc import Sequence
from dataclasses import replace

from vlm_agent.episodes import Episode, Screen
from vlm_agent.recipe.data import CoatRecipe
from vlm_agent.sentences.thoughts.recorded import known_texts, recorded_texts, texts_at


def controlled_texts(episode: Episode, parts: CoatRecipe, control: str | None) -> Episode:
    """The texts of an episode of training (`recorded_texts`) under `data.control`."""
    episode = recorded_texts(episode, parts)
    return with_shuffled_results(episode) if control == "shuffled_results" else episode


def with_shuffled_results(episode: Episode) -> Episode:
    """The episode with texts at every step, and the result of each action replaced as `shuffled_results` does."""
    texts = [texts_at(episode, number) for number in range(len(episode))]
    results = shuffled_results([each["result"] for each in texts[1:]], episode.goal)
    steps = (
        replace(step, notes={**step.notes, "screen": known["screen"], "result": result})
        for step, known, result in zip(episode.steps, texts, [*results, ""], strict=True)
    )
    return replace(episode, steps=tuple(steps))


def with_shuffled_texts(screens: Sequence[Screen], goal: str) -> list[Screen]:
    """Consecutive screens from the first of an episode on, with the texts of `with_shuffled_results`."""
    texts = known_texts(screens)
    results = ["", *shuffled_results([each["result"] for each in texts[1:]], goal)]
    return [
        replace(screen, notes={**known, "result": result})
        for screen, known, result in zip(screens, texts, results, strict=True)
    ]


def shuffled_results(results: Sequence[str], goal: str) -> list[str]:
    """For the result of each action that of an earlier action of the episode, at random; empty for the first.

    Results of later actions would describe screens that are not shown yet. The choice depends on goal and step alone.
    """
    return [
        results[random.Random(f"{goal} {number} result").randrange(number)] if number else ""  # noqa: S311 (no secret)
        for number in range(len(results))
    ]
