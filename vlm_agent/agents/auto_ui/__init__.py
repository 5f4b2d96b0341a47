"""Settings of the agent of an Auto-UI run. Nothing here imports torch before `load`."""

from pathlib import Path
from typing import Any, ClassVar

from pydantic import PositiveInt

from vlm_agent.agents.agent import Agent
from vlm_agent.agents.of_run import RunSettings

BATCH_SIZE = 32


class AutoUiSettings(RunSettings):
    """`batch_size`: steps that are decoded together; rounding depends on it.

    `features`: the output of `vlm-agent features` for the shards of an evaluation. Features of screens that are not in
    it are computed when they are needed, as all are without it.

    `constrained`: every answer is then a plan and an action. It needs a tokenizer that can write every byte: one that
    was trained with the run, not T5's.
    """

    SENTENCES: ClassVar[tuple[str, ...]] = ("chain_of_actions",)

    agent: str = "auto_ui"
    batch_size: PositiveInt = BATCH_SIZE
    features: str | None = None

    def identity(self) -> dict[str, Any]:
        """`features` is left out: stored features are refused unless their extractor is that of the run, so they equal
        those that are computed here, up to the rounding of another device or precision."""
        return super().identity() | {"batch_size": self.batch_size}

    def build(self, folder: Path) -> Agent:
        from vlm_agent.agents.auto_ui.agent import AutoUiAgent

        stored = None if self.features is None else Path(self.features)
        return AutoUiAgent.from_run(folder, self.bf16, self.batch_size, self.constrained, stored, self.is_merged)
