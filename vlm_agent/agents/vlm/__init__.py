"""Settings of the agent of a trained vision-language model. Nothing here imports torch before `load`."""

from pathlib import Path
from typing import Any, ClassVar

from pydantic import PositiveInt

from vlm_agent.agents.agent import Agent
from vlm_agent.agents.of_run import RunSettings
from vlm_agent.recipe.data import IN_TURNS

BATCH_TOKENS = 8192


class VlmSettings(RunSettings):
    """`batch_tokens`: tokens per forward pass, padding included; rounding depends on it. None: as many as the GPU has
    memory for (`agent.tokens_at_once`)."""

    SENTENCES: ClassVar[tuple[str, ...]] = IN_TURNS

    agent: str = "vlm"
    batch_tokens: PositiveInt | None = None

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"batch_tokens": self.batch_tokens}

    def build(self, folder: Path) -> Agent:
        from vlm_agent.agents.vlm.agent import VlmAgent

        return VlmAgent.from_run(folder, self.bf16, self.batch_tokens, self.constrained, self.is_merged)
