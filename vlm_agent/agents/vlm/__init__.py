"""Settings of the agent of a trained vision-language model. Nothing here imports torch before `load`."""

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import PositiveInt

from vlm_agent.action_languages import LanguageSettings
from vlm_agent.agents.agent import Agent, AgentSettings
from vlm_agent.agents.controls import CONTROLS, ControlledAgent
from vlm_agent.files import sha256_of
from vlm_agent.recipe.run import Recipe, read_recipe

if TYPE_CHECKING:
    from vlm_agent.models.run_layout import Trained

BATCH_TOKENS = 8192


class VlmSettings(AgentSettings):
    """`run`: a run folder, one of its checkpoints (RUN/checkpoints/checkpoint-N), or the name of an embedded base.

    `bf16`: mixed precision, which is faster but not bit-exact. `batch_tokens`: tokens per forward pass, padding
    included; rounding depends on it. `constrained`: constrained decoding, so that every answer is an action.
    """

    VARIANTS: ClassVar[tuple[str, ...]] = ("constrained",)

    agent: str = "vlm"
    run: str
    bf16: bool = False
    batch_tokens: PositiveInt = BATCH_TOKENS
    constrained: bool = False

    @property
    def display_name(self) -> str:
        return self.run

    @property
    def language(self) -> LanguageSettings:
        return self._recipe.action_language

    @cached_property
    def _trained(self) -> "Trained":
        from vlm_agent.models.run_layout import base_folder, trained

        return trained(base_folder(self.run))

    @cached_property
    def _recipe(self) -> Recipe:
        return read_recipe(self._trained.recipe)

    def identity(self) -> dict[str, Any]:
        """The sha256 of the model's files, and the settings of decoding. Raises FileNotFoundError without a model."""
        identity = {"checkpoint": sha256_of(self._trained.files), "bf16": self.bf16, "batch_tokens": self.batch_tokens}
        # Omitted by default, so that evaluations of versions without this setting can be resumed.
        return identity | ({"constrained": True} if self.constrained else {})

    def device(self) -> str:
        from vlm_agent.models.weights.device import describe_device, model_device

        return describe_device(model_device())

    def load(self) -> Agent:
        """The agent, under the control of its training (`data.control`), if any."""
        from vlm_agent.agents.vlm.agent import VlmAgent
        from vlm_agent.models.run_layout import base_folder

        agent = VlmAgent.from_run(base_folder(self.run), self.bf16, self.batch_tokens, self.constrained)
        control = self._recipe.data.control
        return agent if control is None else ControlledAgent(agent, CONTROLS[control])
