"""Controls: an agent with one source of information removed, such as screens or history.

The difference between the scores of an agent and of its control shows how much the agent uses that information.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Self

import numpy as np

from vlm_agent.agents.agent import ActsTogether, Agent, Answer, Asked, Preparation, Turn
from vlm_agent.episodes import Episode, Screen, Step
from vlm_agent.errors import UserError
from vlm_agent.sentences.notes import with_shuffled_notes, with_shuffled_results

GREY = 128


@dataclass(frozen=True)
class Control:
    """`screen`: a function applied to every screen, current and earlier. `history`: False removes it, and the result of
    the previous action with it. `shuffled_results`: the result of each action is replaced by that of an earlier one."""

    screen: Callable[[Screen], Screen] | None = None
    history: bool = True
    shuffled_results: bool = False


def grey_pixels(screen: Screen) -> Screen:
    """The screen with every pixel grey; elements and activity are unchanged."""
    return replace(screen, pixels=None if screen.pixels is None else _grey(screen.pixels.shape))


@lru_cache(maxsize=64)
def _grey(shape: tuple[int, ...]) -> np.ndarray:
    """The same object for every screen of a size, so that agents see that it is the same."""
    pixels = np.full(shape, GREY, np.uint8)
    pixels.flags.writeable = False
    return pixels


def hidden(screen: Screen) -> Screen:
    """A grey screen without elements, activity and texts, for an agent that reads them.

    Elements that the source does not provide stay None.
    """
    elements = None if screen.elements is None else ()
    notes = {**screen.notes, "screen": "", "result": ""}
    return replace(grey_pixels(screen), elements=elements, activity="", notes=notes)


CONTROLS: dict[str, Control] = {
    "grey_screens": Control(screen=grey_pixels),
    "no_history": Control(history=False),
    "shuffled_results": Control(shuffled_results=True),
}


def controls_of(text_inputs: Sequence[str], chosen: bool | Sequence[str] = True) -> tuple[str, ...]:
    """The names of the controls of an agent with these `text_inputs`: it must read results for them to be shuffled.

    `chosen`: all, none, or those of these names. Raises UserError for a name that is not among the agent's controls.
    """
    names = tuple(name for name, control in CONTROLS.items() if "result" in text_inputs or not control.shuffled_results)
    if isinstance(chosen, bool):
        return names if chosen else ()
    if unknown := [name for name in chosen if name not in names]:
        raise UserError(f"control {unknown[0]!r} is not one of this agent; choose from {', '.join(names)}")
    return tuple(name for name in names if name in chosen)


def controlled(agent: Agent, control: Control) -> Agent:
    """`agent` under `control`. Answers of a text model without sight are decoded on the true screen, as in training."""
    blind = None if control.screen is None else agent.without_sight()
    return ControlledAgent(agent, control) if blind is None else ControlledAgent(blind, replace(control, screen=None))


@dataclass(frozen=True)
class AgentAround(Agent):
    """`agent`, which is asked something else: under control, or about elements that are read."""

    agent: Agent

    @abstractmethod
    def visible(self, goal: str, history: Sequence[Turn], screen: Screen) -> Asked:
        """What the agent is asked in place of the arguments of `act`."""

    def act(self, goal: str, history: Sequence[Turn], screen: Screen) -> Answer:
        return self.agent.act(*self.visible(goal, history, screen))

    def together(self) -> ActsTogether | None:
        together = self.agent.together()
        return None if together is None else TogetherAround(self.visible, together)

    def without_sight(self) -> Self | None:
        blind = self.agent.without_sight()
        return None if blind is None else replace(self, agent=blind)

    def estimate(self, sample: Callable[[], Sequence[Episode]], steps: int) -> str | None:
        return self.agent.estimate(sample, steps)

    def spending(self) -> str:
        return self.agent.spending()

    def stop(self) -> None:
        self.agent.stop()


@dataclass(frozen=True)
class TogetherAround:
    """`ActsTogether` of an `AgentAround`."""

    visible: Callable[[str, Sequence[Turn], Screen], Asked]
    together: ActsTogether

    def act(self, asked: Sequence[Asked]) -> list[Answer]:
        return self.together.act([self.visible(*one) for one in asked])


@dataclass(frozen=True)
class ControlledAgent(AgentAround):
    """`agent` under `control`. It still answers in batches, because the control changes its episodes."""

    control: Control

    def visible(self, goal: str, history: Sequence[Turn], screen: Screen) -> Asked:
        if self.control.shuffled_results:
            *before, screen = with_shuffled_notes([*(turn.screen for turn in history), screen], goal)
            history = [replace(turn, screen=shown) for turn, shown in zip(history, before, strict=True)]
        turns = [replace(turn, screen=self._changed(turn.screen)) for turn in history] if self.control.history else []
        if not self.control.history:
            screen = replace(screen, notes={name: text for name, text in screen.notes.items() if name != "result"})
        return Asked(goal, turns, self._changed(screen))

    def answer_episodes(self, episodes: Sequence[Episode]) -> list[list[Answer]]:
        parts = [visible_parts(episode, self.control) for episode in episodes]
        return _by_episode(self.agent.answer_episodes([part for each in parts for part in each]), parts)

    def preparation(self) -> Preparation | None:
        preparation = self.agent.preparation()
        return None if preparation is None else partial(_prepare_visible, self.control, preparation)

    def answer_prepared(self, prepared: Sequence[list]) -> list[list[Answer]]:
        return _by_episode(self.agent.answer_prepared([part for each in prepared for part in each]), prepared)

    def _changed(self, screen: Screen) -> Screen:
        return screen if self.control.screen is None else self.control.screen(screen)


def _prepare_visible(control: Control, prepare: Preparation, episode: Episode) -> list:
    """The parts of an episode that are visible under a control, each prepared for the agent."""
    return [prepare(part) for part in visible_parts(episode, control)]


def visible_parts(episode: Episode, control: Control) -> list[Episode]:
    """The episode as visible under `control`: one episode, or without history one episode per step."""
    if control.shuffled_results:
        episode = with_shuffled_results(episode)
    steps = tuple(_controlled_step(step, control) for step in episode.steps)
    if control.history:
        return [replace(episode, steps=steps)]
    first = episode.first_step
    return [replace(episode, steps=(step,), first_step=number) for number, step in enumerate(steps, start=first)]


def _controlled_step(step: Step, control: Control) -> Step:
    if control.screen is None:
        return step
    screen = control.screen(step.screen)
    return replace(step, screenshot=screen.pixels, elements=tuple(screen.elements or ()), activity=screen.activity)


def _by_episode(answers: list[list[Answer]], parts: Sequence[list]) -> list[list[Answer]]:
    """Answers [part][step] regrouped as [episode][step]; `parts` are the parts of each episode."""
    rest = iter(answers)
    return [[answer for _ in each for answer in next(rest)] for each in parts]
