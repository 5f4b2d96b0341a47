"""Settings of an agent that exists already."""

from typing import Any

from pydantic import Field

from vlm_agent.agents import AgentSettings


class Prepared(AgentSettings):
    """`loads` gets an entry at every load."""

    agent: str = "prepared"
    prepared: Any
    weights: str = "a"
    loads: list = Field(default_factory=list)

    @property
    def display_name(self):
        return "here"

    def identity(self):
        return {"weights": self.weights}

    def load(self):
        self.loads.append(1)
        return self.prepared
