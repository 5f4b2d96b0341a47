"""Controls: any agent with one source of information removed.

The score of a control shows how much of the agent's score needs that information.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vlm_agent.agents.agent import Agent, Answer, Turn, answer_episodes
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
        parts = [self._parts(episode) for episode in episodes]
        by_run = answer_episodes(self.agent, [part for each in parts for part in each], variants)
        return [_joined(answers, parts) for answers in by_run]

    def _parts(self, episode: Episode) -> list[Episode]:
        """The episode as the agent may know it: in one piece, or without history as one episode per step."""
        steps = tuple(map(self._seen_step, episode.steps))
        if self.control.history:
            return [replace(episode, steps=steps)]
        return [replace(episode, steps=(step,)) for step in steps]

    def _seen(self, screen: Screen) -> Screen:
        return screen if self.control.screen is None else self.control.screen(screen)

    def _seen_step(self, step: Step) -> Step:
        if self.control.screen is None:
            return step
        screen = self._seen(step.screen)
        return replace(step, screenshot=screen.pixels, elements=tuple(screen.elements or ()), activity=screen.activity)


def _joined(answers: list[list[Answer]], parts: list[list[Episode]]) -> list[list[Answer]]:
    """Answers [part][step] as [episode][step]."""
    rest = iter(answers)
    return [[answer for _ in each for answer in next(rest)] for each in parts]
