"""Where the agent that is evaluated comes from: a checkpoint here, or an endpoint elsewhere.

Each says what decides its answers (`described`, which two runs into one output must share), where it is (`place`), in
which action language it speaks, and loads itself only when there is something to predict.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from vlm_agent.agents import Agent
from vlm_agent.agents.chat import ChatEndpoint
from vlm_agent.agents.endpoint import EndpointAgent
from vlm_agent.agents.vlm import BATCH_TOKENS, VlmAgent
from vlm_agent.datasets.convert.hashed_file import sha256_of
from vlm_agent.models.trained import trained
from vlm_agent.training.recipe import LanguageRecipe, read_recipe


class Source(Protocol):
    @property
    def place(self) -> str: ...

    @property
    def language(self) -> LanguageRecipe: ...

    def described(self) -> dict: ...

    def load(self) -> Agent: ...


@dataclass(frozen=True)
class Checkpoint:
    """A finished run, or a checkpoint of one that goes on. `bf16` and `batch_tokens` as `VlmAgent` has them: sums over
    other batches round otherwise.
    """

    run: Path
    bf16: bool = False
    batch_tokens: int = BATCH_TOKENS

    @property
    def place(self) -> str:
        return str(self.run)

    @cached_property
    def language(self) -> LanguageRecipe:
        return read_recipe(trained(self.run).recipe).action_language

    def described(self) -> dict:
        """Raises FileNotFoundError where there is no model."""
        digest = sha256_of(trained(self.run).files)
        return {"checkpoint": digest, "bf16": self.bf16, "batch_tokens": self.batch_tokens}

    def load(self) -> VlmAgent:
        return VlmAgent.from_run(self.run, bf16=self.bf16, batch_tokens=self.batch_tokens)


@dataclass(frozen=True)
class Endpoint:
    """A model that somebody serves; the same one at another address is the same agent."""

    chat: ChatEndpoint
    language: LanguageRecipe
    past_screens: int = 2
    max_tokens: int = 128
    workers: int = 8

    @property
    def place(self) -> str:
        return f"{self.chat.model} at {self.chat.url}"

    def described(self) -> dict:
        return {"model": self.chat.model, "past_screens": self.past_screens, "max_tokens": self.max_tokens}

    def load(self) -> EndpointAgent:
        return EndpointAgent(self.chat, self.language.build(), self.past_screens, self.max_tokens, self.workers)
