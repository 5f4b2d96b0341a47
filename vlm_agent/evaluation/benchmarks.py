"""A benchmark: everything that decides what is measured on what, read from YAML (`eval/*.yaml`).

Unknown keys are errors that name the nearest right one.
"""

import difflib
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import AfterValidator, PositiveInt, ValidationError

from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.splits import SPLITS
from vlm_agent.evaluation.dialects import named
from vlm_agent.models.recipe import Section


def _split(name: str) -> str:
    if name not in SPLITS:
        raise ValueError(f"there is no split {name!r}; there are {', '.join(SPLITS)}")
    return name


def _dialect(name: str) -> str:
    named(name)
    return name


class BenchmarkRecipe(Section):
    """`name`, `about` and `source` are for people; the rest are defaults that the command line may change.

    `groups` is a JSON file, name → episode ids, scored apart. `dialect` is scored beside official and strict.
    """

    name: str
    about: str
    source: str
    shards: str
    split: Annotated[str, AfterValidator(_split)] = "test"
    groups: str | None = None
    limit: PositiveInt | None = None
    dialect: Annotated[str, AfterValidator(_dialect)] = "official"


def read_benchmark(path: Path) -> BenchmarkRecipe:
    """Raises DatasetError naming the file and every key that is unknown, missing or of the wrong kind."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise DatasetError(f"{path} is no YAML: {error}") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise DatasetError(f"{path} must hold keys and values at its top level")
    try:
        return BenchmarkRecipe(**content)
    except ValidationError as error:
        raise DatasetError("\n".join(f"{path}: {_explain(problem)}" for problem in error.errors())) from None


def _explain(problem: dict) -> str:
    where = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        nearest = difflib.get_close_matches(where, BenchmarkRecipe.model_fields, n=1, cutoff=0)[0]
        return f"unknown key {where}; did you mean {nearest}?"
    return f"{where}: {problem['msg']}"
