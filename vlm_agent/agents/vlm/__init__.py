"""Settings of the agent of a trained vision-language model. Nothing here imports torch before `load`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, PositiveInt, ValidationInfo, field_validator

from vlm_agent.agents.agent import Agent
from vlm_agent.agents.of_run import RunSettings
from vlm_agent.recipe.data import IN_TURNS

BATCH_TOKENS = 8192


class VlmSettings(RunSettings):
    """`batch_tokens`: tokens per forward pass, padding included; rounding depends on it. None: as many as the GPU has
    memory for (`agent.tokens_at_once`).

    `temperature`: of sampling on phones, whose draws depend on the run, the task and the step alone. 0 is greedy.
    """

    SENTENCES: ClassVar[tuple[str, ...]] = IN_TURNS

    agent: str = "vlm"
    batch_tokens: PositiveInt | None = None
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0

    @field_validator("temperature")
    @classmethod
    def _samples_freely(cls, temperature: float, earlier: ValidationInfo) -> float:
        if temperature and earlier.data.get("constrained"):
            raise ValueError("temperature and constrained exclude each other: remove one")
        return temperature

    def identity(self) -> dict[str, Any]:
        sampled = {"temperature": self.temperature} if self.temperature else {}
        return super().identity() | {"batch_tokens": self.batch_tokens} | sampled

    def build(self, folder: Path) -> Agent:
        from vlm_agent.agents.vlm.agent import Sampling, VlmAgent

        agent = VlmAgent.from_run(folder, self.bf16, self.batch_tokens, self.constrained, self.is_merged)
        sampling = Sampling(self.temperature, "agent", keeps=False)
        return replace(agent, sampling=sampling) if self.temperature else agent
