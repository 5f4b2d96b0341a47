"""An agent that needs no model, and whose work before the model is a function of the test's."""

from collections.abc import Callable
from dataclasses import dataclass

from vlm_agent.agents import Agent, Answer
from vlm_agent.episodes import Episode


@dataclass(frozen=True)
class PreparingAgent(Agent):
    """`prepare` returns the length of an episode; every answer is empty."""

    prepare: Callable[[Episode], int]

    def preparation(self):
        return self.prepare

    def answer_episodes(self, episodes):
        raise AssertionError("the episodes are prepared")

    def answer_prepared(self, prepared):
        return [[Answer("", None)] * length for length in prepared]

    def act(self, goal, history, screen):
        raise AssertionError("the episodes are prepared")
