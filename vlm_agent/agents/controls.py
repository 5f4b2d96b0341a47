"""Controls: any agent with one source of information removed.

The score of a control shows how much of the agent's score needs that information.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from vlm_agent.agents.agent import Agent, Answer, Preparation, PreparingAgent, Turn, answer_episodes, preparation_of
from vlm_agent.episodes import Episode, Screen, Step

GREY = 128


@dataclass(frozen=True)
class Control:
    """`screen` replaces every screen, current and earlier. Without `history` every step is the agent's first."""

    screen: Callable[[Screen], Screen] | None = None
    history: bool = True


def grey_pixels(screen: Screen) -> Screen:
    """The same screen with every pixel grey; elements and activity stay."""
    return replace(screen, pixels=None if screen.pixels is None else np.full_like(screen.pixels, GREY))


CONTROLS: dict[str, Control] = {
    "grey_screens": Control(screen=grey_pixels),
    "no_history": Control(history=False),
}


@dataclass(frozen=True)
class ControlledAgent:
    """`agent` under `control`. A `BatchedAgent` keeps its speed, because it answers changed episodes."""

    agent: Agent
    control: Control

    def act(self, goal: str, history: Sequence[Turn], screen: Screen) -> Answer:
        turns = [replace(turn, screen=self._seen(turn.screen)) for turn in history] if self.control.history else []
        return self.agent.act(goal, turns, self._seen(screen))

    def answer_episodes(self, episodes: Sequence[Episode], variants: Sequence[str] = ()) -> list[list[list[Answer]]]:
        parts = [known_parts(episode, self.control) for episode in episodes]
        by_run = answer_episodes(self.agent, [part for each in parts for part in each], variants)
        return [_joined(answers, parts) for answers in by_run]

    def preparation(self) -> Preparation | None:
        preparation = preparation_of(self.agent)
        return None if preparation is None else ControlledPreparation(self.control, preparation)

    def answer_prepared(self, prepared: Sequence[list], variants: Sequence[str] = ()) -> list[list[list[Answer]]]:
        agent = cast("PreparingAgent", self.agent)  # or there is no preparation
        by_run = agent.answer_prepared([part for each in prepared for part in each], variants)
        return [_joined(answers, prepared) for answers in by_run]

    def _seen(self, screen: Screen) -> Screen:
        return _seen(screen, self.control)


@dataclass(frozen=True)
class ControlledPreparation:
    """An episode's parts under a control, each prepared for the agent."""

    control: Control
    preparation: Preparation

    def __call__(self, episode: Episode) -> list:
        return [self.preparation(part) for part in known_parts(episode, self.control)]


def known_parts(episode: Episode, control: Control) -> list[Episode]:
    """The episode as an agent under `control` may know it: in one piece, or without history as one episode per step."""
    steps = tuple(_seen_step(step, control) for step in episode.steps)
    if control.history:
        return [replace(episode, steps=steps)]
    return [replace(episode, steps=(step,)) for step in steps]


def _seen(screen: Screen, control: Control) -> Screen:
    return screen if control.screen is None else control.screen(screen)


def _seen_step(step: Step, control: Control) -> Step:
    if control.screen is None:
        return step
    screen = _seen(step.screen, control)
    return replace(step, screenshot=screen.pixels, elements=tuple(screen.elements or ()), activity=screen.activity)


def _joined(answers: list[list[Answer]], parts: Sequence[list]) -> list[list[Answer]]:
    """Answers [part][step] as [episode][step]."""
    rest = iter(answers)
    return [[answer for _ in each for answer in next(rest)] for each in parts]
