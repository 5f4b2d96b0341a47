"""A recipe: everything that decides a training run, read from YAML and validated. The command line may override keys.

`data.py` and `model.py` hold the sections of these names; `training` is here. The resolved recipe is saved in the run
folder and is itself a valid recipe.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    PlainSerializer,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from vlm_agent.action_languages import ChosenLanguage, default_settings
from vlm_agent.errors import RecipeError
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.model import ModelRecipe
from vlm_agent.recipe.reinforcement import ReinforcementRecipe
from vlm_agent.recipe.yaml_file import find_shipped, override_values, read_mapping, set_keys, validated
from vlm_agent.settings import BARE_OFF, Section, either

NEWEST_KEPT = 2
"""The fewest checkpoints that a run keeps: one may be damaged on disk."""


OFF = "off"
TRACKERS = ("wandb", "trackio", "mlflow")
"""The values of `track` besides `off`, which are names of packages. `training/journal.py` starts them."""

BETAS = (0.9, 0.98)
Beta = Annotated[float, Field(ge=0, lt=1)]


def _steps_or_fraction(value: float) -> float:
    if value < 1 and value != 0:
        return value
    if value != int(value):
        raise ValueError("must be a whole number of steps, or below 1 for a fraction of all steps")
    return int(value)


StepsOrFraction = Annotated[
    NonNegativeFloat, AfterValidator(_steps_or_fraction), PlainSerializer(_steps_or_fraction, return_type=int | float)
]


def _known_tracker(name: str) -> str:
    if name != OFF and name not in TRACKERS:
        raise ValueError(f"{name!r} is unknown; choose one of {', '.join((OFF, *TRACKERS))}")
    return name


class OptimizerRecipe(Section):
    """`muon` is for models from scratch and takes `muon_learning_rate` for weight matrices beside `learning_rate`.
    `betas`: AdamW's decay rates of the gradient's mean and of its square."""

    name: Literal["adamw", "muon"] = "adamw"
    learning_rate: PositiveFloat = 1e-4
    muon_learning_rate: PositiveFloat = 0.01
    weight_decay: NonNegativeFloat = 0.01
    betas: tuple[Beta, Beta] = BETAS


class ValidationRecipe(Section):
    """Every `steps` steps the loss and exact actions of `episodes` episodes of `split` are measured. The episodes are
    spread evenly over the subsets."""

    split: str = "validation"
    episodes: PositiveInt = 64
    steps: PositiveInt = 200


class TrainingRecipe(Section):
    """Length and size of the run: `steps` optimiser steps of `accumulation` rows per rank; a row is one forward pass.

    A row packs `batch_size` sentences (default 1), or as many as fit into `batch_tokens`, which is the better
    choice where episodes differ in length. Set exactly one of `steps` and `epochs`. `schedule` starts after
    `warmup_steps` of linear warm-up; a value below 1 is a fraction of all steps. `bf16`: mixed precision; `auto`:
    where it is faster than float32 on the machine that starts the run (GPUs from Ampere on, CPUs with AMX, AMD from
    Zen 4 on); the run's recipe.yaml states which, and a resumed run keeps it. `gradient_checkpointing`: the
    backward pass computes the layers again instead of keeping their activations; `auto`: as few layers as the GPU's
    memory demands, by the estimate of the dry run, and none on a CPU. `save_steps`: a checkpoint every so many
    steps; `save_seconds`: also when so many seconds have passed since the last one, so that a killed run loses no
    more, however long a step takes. `keep_checkpoints`: how many of the newest to keep, beside the best. `track`:
    also logs the figures of RUN/progress.jsonl, with the recipe, to Weights & Biases (`wandb`), `trackio` or
    `mlflow`. `deepspeed`: a file of `deepspeed_configs/`, for several ranks.
    """

    REPLACES = either("epochs", "steps") | either("batch_size", "batch_tokens")

    epochs: Annotated[float, Field(gt=0, le=100_000)] | None = None
    steps: PositiveInt | None = None
    batch_size: PositiveInt | None = None
    batch_tokens: PositiveInt | None = None
    accumulation: PositiveInt = 1
    optimizer: OptimizerRecipe = OptimizerRecipe()
    schedule: Literal["constant", "linear", "cosine", "trapezoid"] = "cosine"
    warmup_steps: StepsOrFraction = 30
    max_grad_norm: PositiveFloat = 1.0
    bf16: Literal[True, False, "auto"] = False
    gradient_checkpointing: Literal[True, False, "auto"] = False
    save_steps: PositiveInt | None = None
    save_seconds: PositiveInt | None = None
    keep_checkpoints: Annotated[int, Field(ge=NEWEST_KEPT)] = NEWEST_KEPT
    log_steps: PositiveInt = 10
    track: Annotated[str, BARE_OFF, AfterValidator(_known_tracker)] = OFF
    validation: ValidationRecipe | None = None
    deepspeed: str | None = None

    @property
    def deepspeed_file(self) -> Path | None:
        """The file that `deepspeed` names: the user's, else the shipped one of that relative path."""
        return None if self.deepspeed is None else find_shipped(Path(self.deepspeed))

    @model_validator(mode="after")
    def _keys_fit(self) -> "TrainingRecipe":
        if self.batch_tokens is not None and self.batch_size is not None:
            raise ValueError("batch_size and batch_tokens exclude each other; remove one of them")
        if self.epochs is not None and self.steps is not None:
            raise ValueError("epochs and steps exclude each other; remove one of them")
        if self.epochs is None and self.steps is None:
            raise ValueError("the length is missing; set epochs or steps")
        if self.deepspeed is not None and self.optimizer.name == "muon":
            raise ValueError("DeepSpeed partitions weight matrices, and muon needs them whole; use adamw")
        return self


_EXCLUDED_TRAINING = ("epochs", "batch_size", "batch_tokens", "validation", "deepspeed")
_EXCLUDED_DATA = (
    *("shards", "chats", "references", "mixture", "limit", "max_tokens", "control"),
    *("split", "workers", "missing_notes"),
)
"""Keys of training and data that are not for rollouts."""


class Recipe(Section):
    """One training run. `output` is its run folder. `reinforcement`: the agent learns from its rollouts, not from
    data."""

    output: str
    model: ModelRecipe
    data: DataRecipe
    action_language: ChosenLanguage = Field(default_factory=default_settings)
    training: TrainingRecipe
    reinforcement: ReinforcementRecipe | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0

    @model_validator(mode="before")
    @classmethod
    def _length_of_rounds(cls, content: Any) -> Any:
        """The length of a run of reinforcement, and its defaults of a checkpoint and a log line a round."""
        training = content.get("training") if isinstance(content, dict) else None
        if not isinstance(training, dict) or content.get("reinforcement") is None:
            return content
        try:
            played = ReinforcementRecipe.model_validate(content["reinforcement"])
        except ValidationError:  # the field reports it, with its place
            played = ReinforcementRecipe(rounds=1)
        length = {"steps": played.steps} if training.get("epochs") is None else {}
        return content | {"training": length | dict.fromkeys(("save_steps", "log_steps"), played.updates) | training}

    @model_validator(mode="after")
    def _learns_from_rollouts(self) -> "Recipe":
        training, played = self.training, self.reinforcement
        if played is None:
            return self
        excluded = [f"training.{key}" for key in _EXCLUDED_TRAINING if getattr(training, key)]
        usual = DataRecipe()
        excluded += [f"data.{key}" for key in _EXCLUDED_DATA if getattr(self.data, key) != getattr(usual, key)]
        if excluded or self.data.sentences != "trajectory":
            raise ValueError(f"remove {[*excluded, 'data.sentences'][0]}; an agent learns trajectories of its own here")
        if training.steps != played.steps:
            raise ValueError(f"training.steps is reinforcement.rounds x updates, {played.steps}; remove it")
        if self.model.train.has_adapter and self.model.lora.dropout:
            raise ValueError("model.lora.dropout must be 0: tokens are scored as they were sampled, without dropout")
        return self

    @model_validator(mode="after")
    def _sections_fit(self) -> "Recipe":
        if self.model.dtype == "bfloat16" and self.training.bf16 is not True:
            raise ValueError("model.dtype: bfloat16 needs training.bf16: true, because the trained weights are float32")
        no_packing = self.data.sentence_options.no_packing
        if no_packing is not None and (self.training.batch_tokens or self.data.max_tokens):
            raise ValueError(no_packing)
        if (self.data.max_tokens or 0) > (self.training.batch_tokens or float("inf")):
            raise ValueError("data.max_tokens must not be greater than training.batch_tokens; every sentence must fit")
        return self

    def to_yaml(self) -> str:
        """Every key with its value, also defaults, so that a saved run keeps its meaning when a default changes."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def read_recipe(path: Path, overrides: dict[str, str] | None = None) -> Recipe:
    """The recipe in a YAML file, with dotted `overrides` such as {"training.steps": "10"} applied.

    An override removes the keys of the file that it excludes, such as `training.epochs`.
    Raises RecipeError naming the file and every key that is unknown, missing or of the wrong kind.
    """
    content = read_mapping(path, RecipeError)
    set_keys(Recipe, content, override_values(overrides or {}, RecipeError), RecipeError)
    return validated(Recipe, content, str(path), RecipeError)
