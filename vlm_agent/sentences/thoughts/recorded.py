"""The texts that are known when a screen is shown: each is recorded, else that of any phone (`texts/phone.py`)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vlm_agent.episodes import CoatTexts, Episode, Screen, ScreenTexts, recorded_screen
from vlm_agent.recipe.data import CoatRecipe
from vlm_agent.texts.phone import result_text, screen_text


@dataclass(frozen=True, slots=True)
class KnownTexts(ScreenTexts):
    """Both texts; one that neither the source nor a phone gives is empty."""

    description: str = ""
    result: str = ""


def known_texts(screens: Sequence[Screen]) -> list[KnownTexts]:
    """The texts of consecutive screens from the first of an episode on: each is recorded, else computed."""
    return [_known(before, screen) for before, screen in zip([None, *screens], screens, strict=False)]


def texts_at(episode: Episode, number: int) -> KnownTexts:
    """The texts that are known at step `number` of an episode."""
    return _known(episode.steps[number - 1].screen if number else None, recorded_screen(episode, number))


def _known(before: Screen | None, screen: Screen) -> KnownTexts:
    """`before`: the previous screen, None at the first step."""
    description, result = (None, None) if screen.texts is None else (screen.texts.description, screen.texts.result)
    if description is None:
        description = screen_text(screen)
    if result is None:
        result = "" if before is None else result_text(before, screen)
    return KnownTexts(description, result)


def recorded_texts(episode: Episode, parts: CoatRecipe) -> Episode:
    """An episode of training. Steps without texts have empty ones, which `data.coat.missing`
    allows; so none is computed."""
    if not parts.is_on:
        return episode
    coats = (CoatTexts() if step.coat is None else step.coat for step in episode.steps)
    steps = tuple(replace(step, coat=coat) for step, coat in zip(episode.steps, coats, strict=True))
    return replace(episode, steps=steps)
