"""Any agent, with the elements of every screen read from its pixels.

Elements of recorded steps, of the current and of earlier ones, are replaced, too: none of the source's own reaches the
agent. A control is around this agent, so from a grey screen nothing is read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from vlm_agent.agents.agent import (
    Agent,
    Answer,
    Judge,
    JudgedAgent,
    Preparation,
    PreparingAgent,
    PricedAgent,
    StoppableAgent,
    Turn,
    answer_episodes,
    preparation_of,
)
from vlm_agent.agents.controls import TextAgent
from vlm_agent.agents.lessons import Episodes
from vlm_agent.agents.read_screens.reader import ScreenReader
from vlm_agent.episodes import Episode, Screen, Step


def with_read_elements(agent: Agent, reader: ScreenReader) -> "ReadingAgent":
    """`agent` on screens whose elements `reader` reads. The result has a price if the agent has one."""
    return (PricedReadingAgent if isinstance(agent, PricedAgent) else ReadingAgent)(agent, reader)


@dataclass(frozen=True)
class ReadingAgent:
    """`judge`: of recorded steps with the data set's elements, as scores are."""

    agent: Agent
    reader: ScreenReader
    judge: Judge | None = None

    def act(self, goal: str, history: Sequence[Turn], screen: Screen) -> Answer:
        turns = [replace(turn, screen=self.reader.screen(turn.screen)) for turn in history]
        return self.agent.act(goal, turns, self.reader.screen(screen))

    def answer_episodes(self, episodes: Sequence[Episode], variants: Sequence[str] = ()) -> list[list[list[Answer]]]:
        read = [read_episode(episode, self.reader) for episode in episodes]
        return answer_episodes(self._judged(episodes, read), read, variants)

    def preparation(self) -> Preparation | None:
        preparation = preparation_of(self.agent)
        return None if preparation is None else ReadingPreparation(self.reader, preparation)

    def answer_prepared(self, prepared: Sequence[Any], variants: Sequence[str] = ()) -> list[list[list[Answer]]]:
        return cast("PreparingAgent", self.agent).answer_prepared(prepared, variants)

    def judged_by(self, judge: Judge) -> "ReadingAgent":
        return replace(self, judge=judge)

    def _judged(self, recorded: Sequence[Episode], read: Sequence[Episode]) -> Agent:
        """The agent, which sees the steps that were `read`, with the judge of those that were `recorded`."""
        if self.judge is None or not isinstance(self.agent, JudgedAgent):
            return self.agent
        judge = self.judge
        pairs = [zip(after.steps, before.steps, strict=True) for after, before in zip(read, recorded, strict=True)]
        recorded_of = {id(seen): step for steps in pairs for seen, step in steps}
        return self.agent.judged_by(lambda action, step: judge(action, recorded_of[id(step)]))

    def without_sight(self) -> "ReadingAgent | None":
        blind = self.agent.without_sight() if isinstance(self.agent, TextAgent) else None
        return None if blind is None else replace(self, agent=blind)

    def stop(self) -> None:
        if isinstance(self.agent, StoppableAgent):
            self.agent.stop()


@dataclass(frozen=True)
class PricedReadingAgent(ReadingAgent):
    def estimate(self, episodes: Sequence[Episode], steps: int) -> str:
        return cast("PricedAgent", self.agent).estimate([read_episode(one, self.reader) for one in episodes], steps)

    def spending(self) -> str:
        return cast("PricedAgent", self.agent).spending()


@dataclass(frozen=True)
class ReadingPreparation:
    """Reads the screens of an episode before the agent's preparation, which may run in another process."""

    reader: ScreenReader
    preparation: Callable[[Episode], Any]

    def __call__(self, episode: Episode) -> Any:
        return self.preparation(read_episode(episode, self.reader))


@dataclass(frozen=True)
class ReadEpisodes:
    """`episodes` with the elements of their screens read from the pixels, an episode at a time."""

    episodes: Episodes
    reader: ScreenReader

    def __len__(self) -> int:
        return len(self.episodes)

    def __getitem__(self, index: int) -> Episode:
        return read_episode(self.episodes[index], self.reader)


def read_episode(episode: Episode, reader: ScreenReader) -> Episode:
    """The episode with the elements of its screens read from their pixels; none without pixels."""
    return replace(episode, steps=tuple(_read(step, reader) for step in episode.steps))


def _read(step: Step, reader: ScreenReader) -> Step:
    return replace(step, elements=() if step.screenshot is None else reader.elements(step.screenshot))
