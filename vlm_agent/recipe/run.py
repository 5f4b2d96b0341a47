"""A recipe: everything that decides a training run, read from YAML and validated. The command line may override keys.

`data.py`, `model.py` and `training.py` hold its sections. The resolved recipe is saved in the run folder
and is itself a valid recipe.
"""

from pathlib import Path

import yaml
from pydantic import Field, NonNegativeInt, model_validator

from vlm_agent.action_languages import ChosenLanguage, default_settings
from vlm_agent.errors import RecipeError
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.model import ModelRecipe
from vlm_agent.recipe.training import TrainingRecipe
from vlm_agent.recipe.yaml_file import override, read_mapping, validated
from vlm_agent.settings import Section


class Recipe(Section):
    """One training run. `output` is its run folder."""

    output: str
    model: ModelRecipe
    data: DataRecipe
    action_language: ChosenLanguage = Field(default_factory=default_settings)
    training: TrainingRecipe
    seed: NonNegativeInt = 0

    @model_validator(mode="after")
    def _mixed_precision(self) -> "Recipe":
        if self.model.dtype == "bfloat16" and self.training.bf16 is not True:
            raise ValueError("model.dtype: bfloat16 needs training.bf16: true, because the trained weights are float32")
        return self

    @model_validator(mode="after")
    def _known_lengths(self) -> "Recipe":
        no_packing = self.data.sentence_options.no_packing
        if no_packing is not None and (self.training.batch_tokens or self.data.max_tokens):
            raise ValueError(no_packing)
        budget = self.training.batch_tokens
        if budget is not None and self.data.max_tokens is not None and self.data.max_tokens > budget:
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
    override(Recipe, content, overrides or {}, RecipeError)
    return validated(Recipe, content, str(path), RecipeError)
