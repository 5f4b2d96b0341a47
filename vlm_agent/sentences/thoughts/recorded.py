"""The texts that are known when a screen is shown: recorded ones, else those of any phone (`texts/phone.py`)."""

from collections.abc import Sequence
from dataclasses import replace

from vlm_agent.episodes import CoatTexts, Episode, Screen, ScreenTexts, recorded_screen
from vlm_agent.recipe.data import CoatRecipe
from vlm_agent.texts.phone import result_text, screen_text


def known_texts(screens: Sequence[Screen]) -> list[ScreenTexts]:
    """The texts of consecutive screens from the first of an episode on: recorded ones, else computed."""
    return [_known(before, screen) for before, screen in zip([None, *screens], screens, strict=False)]


def texts_at(episode: Episode, number: int) -> ScreenTexts:
    """The texts that are known at step `number` of an episode."""
    return _known(episode.steps[number - 1].screen if number else None, recorded_screen(episode, number))


def _known(before: Screen | None, screen: Screen) -> ScreenTexts:
    """`before`: the previous screen, None at the first step."""
    if screen.texts is not None:
        return screen.texts
    return ScreenTexts(screen_text(screen), "" if before is None else result_text(before, screen))


def recorded_texts(episode: Episode, parts: CoatRecipe) -> Episode:
    """An episode of training. Steps without texts have empty ones, which `data.coat.missing`
    allows; so none is computed."""
    if not parts.is_on:
        return episode
    coats = (CoatTexts() if step.coat is None else step.coat for step in episode.steps)
    steps = tuple(replace(step, coat=coat) for step, coat in zip(episode.steps, coats, strict=True))
    return replace(episode, steps=steps)
