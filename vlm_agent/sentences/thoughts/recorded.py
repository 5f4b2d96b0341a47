"""The texts that are known when a screen is shown: each is recorded, else that of any phone (`texts/phone.py`)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vlm_agent.episodes import Episode, Screen, recorded_screen
from vlm_agent.recipe.data import CoatRecipe
from vlm_agent.texts.phone import result_text, screen_text


def known_texts(screens: Sequence[Screen]) -> list[Mapping[str, str]]:
    """The notes of consecutive screens from the first of an episode on, with `screen` and `result`: each is recorded,
    else computed; one that neither the source nor a phone gives is empty."""
    return [_known(before, screen) for before, screen in zip([None, *screens], screens, strict=False)]


def texts_at(episode: Episode, number: int) -> Mapping[str, str]:
    """The notes that are known at step `number` of an episode, with `screen` and `result` as for `known_texts`."""
    return _known(episode.steps[number - 1].screen if number else None, recorded_screen(episode, number))


def _known(before: Screen | None, screen: Screen) -> Mapping[str, str]:
    """`before`: the previous screen, None at the first step."""
    known = dict(screen.notes)
    if "screen" not in known:
        known["screen"] = screen_text(screen)
    if "result" not in known:
        known["result"] = "" if before is None else result_text(before, screen)
    return known


def recorded_texts(episode: Episode, parts: CoatRecipe) -> Episode:
    """An episode of training. Steps without texts have empty ones, which `data.coat.missing` allows; so none is
    computed."""
    if not parts.is_on:
        return episode
    steps = (replace(step, notes={"screen": "", "result": "", **step.notes}) for step in episode.steps)
    return replace(episode, steps=tuple(steps))
