"""Settings of the agent of a trained vision-language model. Nothing here imports torch before `load`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, PositiveInt, ValidationInfo, field_validator

from vlm_agent.agents.agent import Agent
from vlm_agent.agents.of_run import RunSettings
from vlm_agent.errors import UserError
from vlm_agent.recipe.data import IN_TURNS
from vlm_agent.sentences.notes import UsedNotes

BATCH_TOKENS = 8192


class VlmSettings(RunSettings):
    """`batch_tokens`: tokens per forward pass, padding included; rounding depends on it. None: as many as the GPU has
    memory for (`agent.tokens_at_once`).

    `temperature`: of sampling on phones, whose draws depend on the run, the task and the step alone. 0 is greedy.
    `complete_above`: the probability below which the agent does not answer `complete`, but what is likeliest besides.
    """

    SENTENCES: ClassVar[tuple[str, ...]] = IN_TURNS

    agent: str = "vlm"
    batch_tokens: PositiveInt | None = None
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0
    complete_above: Annotated[float, Field(ge=0, le=1)] = 0

    @field_validator("temperature", "complete_above")
    @classmethod
    def _chooses_in_one_way(cls, value: float, info: ValidationInfo) -> float:
        for other in ("constrained", "temperature"):
            if value and info.data.get(other):
                raise ValueError(f"{info.field_name} and {other} exclude each other: remove one")
        return value

    def identity(self) -> dict[str, Any]:
        chosen = {name: value for name in ("temperature", "complete_above") if (value := getattr(self, name))}
        return super().identity() | {"batch_tokens": self.batch_tokens} | chosen

    def build(self, folder: Path) -> Agent:
        from vlm_agent.agents.vlm.agent import Sampling, VlmAgent

        if self.complete_above and UsedNotes(self.recipe.data.notes).learned_names:
            raise UserError(
                f"agent.complete_above: answers of {self.run} begin with notes, not with the action: remove it"
            )
        agent = VlmAgent.from_run(folder, self.bf16, self.batch_tokens, self.constrained, self.is_merged)
        sampling = Sampling(self.temperature, "agent") if self.temperature else None
        return replace(agent, sampling=sampling, complete_above=self.complete_above)
