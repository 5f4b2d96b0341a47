"""A recipe: everything that decides a training run, read from YAML, overridden from the command line, checked.

Unknown keys are errors that name the nearest right one; the resolved recipe is saved in the run folder and is itself a
valid recipe.
"""

import difflib
import re
from pathlib import Path
from typing import Literal

import yaml
from pydantic import ValidationError

from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.models.recipe import ModelRecipe, Section


class RecipeError(ValueError):
    """A recipe that cannot be run, with what to change."""


class LanguageRecipe(Section):
    """The action language; `bins` per axis."""

    name: Literal["binned"] = "binned"
    bins: int = 100

    def build(self) -> BinnedLanguage:
        return BinnedLanguage(self.bins)


class DataRecipe(Section):
    """`shards`: a converted folder. `sentences`: whole `trajectory`s, or the `elements` of single screens.

    `mixture`: the fraction of a subset's episodes to use, 1 where a subset is not named. `workers`: processes that
    prepare screens; 0 prepares them in the training process.
    """

    shards: str
    split: str = "train"
    sentences: Literal["trajectory", "elements"] = "trajectory"
    items: int = 12
    mixture: dict[str, float] = {}
    limit: int | None = None
    workers: int = 0


class OptimizerRecipe(Section):
    """`muon` is for models from scratch and takes `muon_learning_rate` for weight matrices beside `learning_rate`."""

    name: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = 1e-4
    muon_learning_rate: float = 0.01
    weight_decay: float = 0.01


class TrainingRecipe(Section):
    """Length and size of the run: `steps` optimiser steps of `accumulation` batches of `batch_size` sentences a rank.

    Exactly one of `steps` and `epochs` is given. `schedule` follows `warmup_steps` of linear warm-up.
    """

    epochs: float | None = None
    steps: int | None = None
    batch_size: int = 1
    accumulation: int = 1
    optimizer: OptimizerRecipe = OptimizerRecipe()
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup_steps: int = 30
    max_grad_norm: float = 1.0
    bf16: bool = False
    gradient_checkpointing: bool = False
    save_steps: int | None = None
    log_steps: int = 10


class Recipe(Section):
    """One training run. `output` is its run folder."""

    output: str
    model: ModelRecipe
    data: DataRecipe
    action_language: LanguageRecipe = LanguageRecipe()
    training: TrainingRecipe
    seed: int = 0

    def save(self, path: Path) -> None:
        path.write_text(yaml.safe_dump(self.model_dump(mode="json", exclude_unset=True), sort_keys=False))


def read_recipe(path: Path, overrides: dict[str, str] | None = None) -> Recipe:
    """The recipe in a YAML file, with dotted `overrides` such as {"training.steps": "10"} applied.

    Raises RecipeError naming the file and every key that is unknown, missing or of the wrong kind.
    """
    try:
        content = _read_yaml(path.read_text())
    except FileNotFoundError:
        raise RecipeError(f"{path} does not exist") from None
    except yaml.YAMLError as error:
        raise RecipeError(f"{path} is no YAML: {error}") from None
    if not isinstance(content, dict):
        raise RecipeError(f"{path} must hold keys and values at its top level")
    for key, value in (overrides or {}).items():
        _override(content, key, value)
    try:
        return Recipe(**content)
    except ValidationError as error:
        raise RecipeError("\n".join(f"{path}: {_explain(problem)}" for problem in error.errors())) from None


class _Loader(yaml.SafeLoader):
    """PyYAML follows YAML 1.1, in which 1e-4 is a string; here it is a number, as everybody means it."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _read_yaml(text: str):
    return yaml.load(text, _Loader)  # noqa: S506 (a SafeLoader)


def _override(content: dict, key: str, value: str) -> None:
    *sections, last = key.split(".")
    for section in sections:
        content = content.setdefault(section, {})
        if not isinstance(content, dict):
            raise RecipeError(f"--{key}: {section} is a value, not a section")
    content[last] = _read_yaml(value)


def _explain(problem: dict) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = _fields_at(problem["loc"][:-1])
        nearest = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1, cutoff=0)
        return f"unknown key {where}; did you mean {'.'.join([*map(str, problem['loc'][:-1]), *nearest])}?"
    return f"{where or 'recipe'}: {problem['msg']}"


def _fields_at(location: tuple) -> list[str]:
    section = Recipe
    for part in location:
        annotation = section.model_fields[part].annotation
        options = getattr(annotation, "__args__", (annotation,))
        section = next(option for option in options if isinstance(option, type) and issubclass(option, Section))
    return list(section.model_fields)
