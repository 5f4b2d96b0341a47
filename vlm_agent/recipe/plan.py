"""`data.plan` of a recipe: the plan and the immediate step of D-PoT in trajectories."""

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from vlm_agent.settings import BARE_OFF, Section

PARTS = ("plan", "step")
"""The names of the notes, in the order in which they are read and written."""


class PlanRecipe(Section):
    """The texts of a planner (D-PoT) that a run reads and learns; see docs/training.md.

    `plan`: what remains to be done. `given`: the current plan is read. `learned`: it is written before the action.
    `first`: a static plan, which is learned at the first step of an episode and read at the later ones. `step`: the
    immediate step in words; unless it is `off`, earlier steps in words consist of it. `weight`: the loss weight of what
    is learned. `max_tokens`: the tokens of plan and step that an agent may write at a step. `missing`: what happens if
    an episode lacks a text that a part needs: an `error` before training, or an `empty` part.
    """

    plan: Annotated[Literal["off", "given", "learned", "first"], BARE_OFF] = "off"
    step: Annotated[Literal["off", "given", "learned"], BARE_OFF] = "off"
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    missing: Literal["error", "empty"] = "error"
    max_tokens: PositiveInt = 128

    def how(self, part: str) -> Any:
        """`off`, `given`, `learned` or `first`. `part`: one of `PARTS`."""
        return getattr(self, part)

    @property
    def read(self) -> tuple[str, ...]:
        """The parts that are read at the step that they belong to."""
        return tuple(part for part in PARTS if self.how(part) == "given")

    @property
    def learned(self) -> tuple[str, ...]:
        """The parts that are written at the first step of an episode, in their order."""
        return tuple(part for part in PARTS if self.how(part) in ("learned", "first"))

    @property
    def is_static(self) -> bool:
        return self.plan == "first"

    @property
    def is_on(self) -> bool:
        return any(self.how(part) != "off" for part in PARTS)

    def without_plan(self) -> "PlanRecipe":
        """With the plan off."""
        return self.model_copy(update={"plan": "off"})
