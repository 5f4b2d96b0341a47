"""The control `shuffled_results`: each step reads the result of another action than the previous one."""

import random
from collections.abc import Sequence
from dataclasses import replace

from vlm_agent.episodes import CoatTexts, Episode, Screen
from vlm_agent.recipe.data import CoatRecipe
from vlm_agent.sentences.thoughts.recorded import known_texts, recorded_texts, texts_at


def controlled_texts(episode: Episode, parts: CoatRecipe, control: str | None) -> Episode:
    """The texts of an episode of training (`recorded_texts`) under `data.control`."""
    episode = recorded_texts(episode, parts)
    return with_shuffled_results(episode) if control == "shuffled_results" else episode


def with_shuffled_results(episode: Episode) -> Episode:
    """The episode with texts at every step, and the result of each action replaced as `shuffled_results` does."""
    texts = [texts_at(episode, number) for number in range(len(episode))]
    results = shuffled_results([each.result for each in texts[1:]], episode.goal)
    coats = [
        replace(step.coat or CoatTexts(), screen=of_screen.description, result=result)
        for step, of_screen, result in zip(episode.steps, texts, [*results, ""], strict=True)
    ]
    steps = (replace(step, coat=coat) for step, coat in zip(episode.steps, coats, strict=True))
    return replace(episode, steps=tuple(steps))


def with_shuffled_texts(screens: Sequence[Screen], goal: str) -> list[Screen]:
    """Consecutive screens from the first of an episode on, with the texts of `with_shuffled_results`."""
    texts = known_texts(screens)
    results = ["", *shuffled_results([each.result for each in texts[1:]], goal)]
    changed = [replace(each, result=result) for each, result in zip(texts, results, strict=True)]
    return [replace(screen, texts=each) for screen, each in zip(screens, changed, strict=True)]


def shuffled_results(results: Sequence[str], goal: str) -> list[str]:
    """For the result of each action that of an earlier action of the episode, at random; empty for the first.

    Results of later actions would describe screens that are not shown yet. The choice depends on goal and step alone.
    """
    return [
        results[random.Random(f"{goal} {number} result").randrange(number)] if number else ""  # noqa: S311 (no secret)
        for number in range(len(results))
    ]
