"""`reinforcement` of a recipe: an agent that learns from its own rollouts (`vlm_agent/reinforcement`)."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, field_validator

from vlm_agent.settings import Section

Reward = Annotated[float, Field(ge=-1000, le=1000)]


class RewardRecipe(Section):
    """The reward of a rollout is the sum of those that apply. `success`: the goal is reached and the agent declared the
    right end. `false_complete`: it declared the task complete without success. `side_effect`: the phone has changed in
    a way that lasts and that the expert's solution does not need. `not_an_action`: an answer was not an action."""

    success: Reward = 1.0
    false_complete: Reward = 0.0
    side_effect: Reward = 0.0
    not_an_action: Reward = 0.0


class ReinforcementRecipe(Section):
    """Training on rollouts on phones whose state shows whether the goal is reached, in place of recorded data.

    In each of `rounds` rounds the agent plays `tasks` tasks of `split`, each `samples` times at `temperature`, and the
    answers of the round are learned in `updates` optimiser steps. `training.steps` is rounds x updates. By default a
    round has a checkpoint and a log line, the first step of the run a line. `method`: a name of
    `reinforcement/methods`. `held_out_templates`: goals of these templates are never practised.
    `curriculum`: `variance` draws a task's template in proportion to p (1 - p), where p is its success in earlier
    rounds, and with a floor of 5 % of all draws; `uniform` draws all templates equally often. `all_fail`: with
    `demonstration`, an expert's trajectory of the task is learned beside a group of rollouts without a success.
    """

    method: str = "grpo"
    task_set: str = "simulated"
    split: str = "train"
    held_out_templates: tuple[str, ...] = ()
    rounds: PositiveInt
    tasks: PositiveInt = 20
    samples: PositiveInt = 8
    updates: PositiveInt = 4
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.7
    curriculum: Literal["variance", "uniform"] = "variance"
    all_fail: Literal["none", "demonstration"] = "none"
    reward: RewardRecipe = RewardRecipe()

    @field_validator("temperature")
    @classmethod
    def _samples_differ(cls, temperature: float) -> float:
        if temperature == 0:
            raise ValueError("0 makes all samples of a task equal, so that all advantages are zero; use 0.5 to 1")
        return temperature

    @field_validator("split")
    @classmethod
    def _not_for_evaluation(cls, split: str) -> str:
        if split != "train":
            raise ValueError(f"{split!r} is refused: these tasks are for evaluation; use train")
        return split

    @property
    def steps(self) -> int:
        """The optimiser steps of the run."""
        return self.rounds * self.updates
