"""A recipe: everything that decides a training run, read from YAML, overridden from the command line, checked.

Unknown keys are errors that name the nearest right one; the resolved recipe is saved in the run folder and is itself a
valid recipe.
"""

import difflib
import re
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_serializer,
    model_validator,
)

from vlm_agent.action_languages.binned import BinnedLanguage
from vlm_agent.action_languages.named import NamedLanguage
from vlm_agent.episodes import SUBSETS
from vlm_agent.models.recipe import ModelRecipe, Section

NEWEST_KEPT = 2
"""Checkpoints that a run keeps at least: as many as it takes to survive one that rots."""


class RecipeError(ValueError):
    """A recipe that cannot be run, with what to change."""


class LanguageRecipe(Section):
    """The action language; `bins` per axis. `named` is `binned` whose taps say what they touch, and with `sought` its
    swipes say what they are to bring."""

    name: Literal["binned", "named"] = "binned"
    bins: Annotated[int, Field(ge=2)] = 100
    sought: bool = False

    @model_validator(mode="after")
    def _only_names_are_sought(self) -> "LanguageRecipe":
        if self.sought and self.name != "named":
            raise ValueError("sought needs a language with names: name: named")
        return self

    def build(self) -> BinnedLanguage:
        return NamedLanguage(self.bins, self.sought) if self.name == "named" else BinnedLanguage(self.bins)


class DrawnRecipe(Section):
    """Screens drawn while the run goes, endlessly, and `items` questions about each (`sentences/lessons.py`).

    Lessons get harder by their number. The first `dense` read whole screens; after them every second one asks before
    it sees. From number `errands` on most of those tell a walk over a phone, step by step, and follow it
    (`devices/simulated_phone/errand.py`). From number `play` on nearly all of them are walks that find more, of which
    the goal tells the end and what had to be looked for (`devices/simulated_phone/play.py`). None: never.
    """

    dense: NonNegativeInt = 0
    errands: NonNegativeInt | None = None
    play: NonNegativeInt | None = None
    items: PositiveInt = 16

    @model_validator(mode="after")
    def _harder_by_number(self):
        if self.play is not None and self.errands is None:
            raise ValueError("play follows errands; give the lesson that they begin with, before or at play's")
        begins = [begin for begin in (self.dense, self.errands, self.play) if begin is not None]
        if begins != sorted(begins):
            raise ValueError("lessons get harder by their number: dense, errands and play each begin behind the last")
        return self


_WITH_DRAWN = ("drawn", "workers")


class DataRecipe(Section):
    """`shards`: a converted folder; or `drawn`: screens that need none, and exclude all but `workers`.

    `sentences`: whole `trajectory`s, or the `elements` of single screens.

    `control` takes a sense away for the whole of training: `grey_screens` shows nothing, `no_history` makes every step
    its episode's first (and a row as many steps as `batch_size` episodes have in the mean). What such an agent scores
    is what the sense is not needed for.
    `max_tokens`: the longest sentence; a trajectory over it becomes several windows. None: the row's budget, where it
    has one, else no limit. `mixture`: the fraction of a subset's episodes to use, 1 where a subset is not named.
    `workers`: processes that prepare screens; 0 prepares them in the training process.
    """

    shards: str | None = None
    drawn: DrawnRecipe | None = None
    split: str = "train"
    sentences: Literal["trajectory", "elements"] = "trajectory"
    items: PositiveInt = 12
    control: Literal["grey_screens", "no_history"] | None = None
    max_tokens: PositiveInt | None = None
    mixture: dict[Literal[SUBSETS], Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    limit: PositiveInt | None = None
    workers: NonNegativeInt = 0

    @model_validator(mode="after")
    def _one_source(self):
        if (self.shards is None) == (self.drawn is None):
            raise ValueError("give either shards or drawn")
        if self.control is not None and self.sentences != "trajectory":
            raise ValueError("control takes a sense from agents, and needs sentences: trajectory")
        if self.drawn is not None and (excluded := self.model_fields_set - {"shards", *_WITH_DRAWN}):
            raise ValueError(f"remove {', '.join(sorted(excluded))}; with drawn it says nothing")
        return self

    @model_serializer(mode="wrap")
    def _as_given(self, serialise) -> dict:
        """Without the keys that drawn screens exclude, so that what is written can be read."""
        content = serialise(self)
        return content if self.drawn is None else {key: content[key] for key in content if key in _WITH_DRAWN}


class OptimizerRecipe(Section):
    """`muon` is for models from scratch and takes `muon_learning_rate` for weight matrices beside `learning_rate`."""

    name: Literal["adamw", "muon"] = "adamw"
    learning_rate: PositiveFloat = 1e-4
    muon_learning_rate: PositiveFloat = 0.01
    weight_decay: NonNegativeFloat = 0.01


class ValidationRecipe(Section):
    """Every `steps` steps, `episodes` episodes of `split`, spread over the subsets, are read and never learned; or as
    many drawn lessons."""

    split: str = "validation"
    episodes: PositiveInt = 64
    steps: PositiveInt = 200


class TrainingRecipe(Section):
    """Length and size of the run: `steps` optimiser steps of `accumulation` rows a rank, each one forward pass.

    A row is `batch_size` sentences laid end to end (1 unless told), or as many as fit into `batch_tokens`: the better
    choice where episodes differ in length. Exactly one of `steps` and `epochs` is given. `schedule` follows
    `warmup_steps` of linear warm-up. `bf16`: mixed precision; `auto` where the processor computes in it, which decides
    a run's last digits. `keep_checkpoints`: how many of the newest are kept, beside the best. `deepspeed`: a file of
    `deepspeed_configs/`, for runs of several ranks.
    """

    epochs: PositiveFloat | None = None
    steps: PositiveInt | None = None
    batch_size: PositiveInt | None = None
    batch_tokens: PositiveInt | None = None
    accumulation: PositiveInt = 1
    optimizer: OptimizerRecipe = OptimizerRecipe()
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup_steps: NonNegativeInt = 30
    max_grad_norm: PositiveFloat = 1.0
    bf16: bool | Literal["auto"] = False
    gradient_checkpointing: bool = False
    save_steps: PositiveInt | None = None
    keep_checkpoints: Annotated[int, Field(ge=NEWEST_KEPT)] = NEWEST_KEPT
    log_steps: PositiveInt = 10
    validation: ValidationRecipe | None = None
    deepspeed: str | None = None

    @model_validator(mode="after")
    def _one_length(self):
        if self.batch_tokens is not None and self.batch_size is not None:
            raise ValueError("give either batch_size or batch_tokens")
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give either epochs or steps")
        return self

    @model_validator(mode="after")
    def _whole_matrices(self):
        if self.deepspeed is not None and self.optimizer.name == "muon":
            raise ValueError("DeepSpeed cuts weight matrices into pieces, and muon needs them whole; use adamw with it")
        return self


class Recipe(Section):
    """One training run. `output` is its run folder."""

    output: str
    model: ModelRecipe
    data: DataRecipe
    action_language: LanguageRecipe = LanguageRecipe()
    training: TrainingRecipe
    seed: NonNegativeInt = 0

    @model_validator(mode="after")
    def _mixed_precision(self):
        if self.model.dtype == "bfloat16" and self.training.bf16 is not True:
            raise ValueError("model.dtype bfloat16 trains float32 weights beside it; that needs training.bf16: true")
        return self

    @model_validator(mode="after")
    def _known_lengths(self):
        if self.data.sentences == "elements" and (self.training.batch_tokens or self.data.max_tokens):
            raise ValueError(
                "sentences of elements are as long as their screens make them; give training.batch_size in place of "
                "training.batch_tokens and data.max_tokens"
            )
        if self.data.drawn is not None and (self.training.batch_tokens or self.training.epochs):
            raise ValueError("drawn screens have no end and no known lengths; give training.steps and .batch_size")
        validation = self.training.validation
        if self.data.drawn is not None and validation is not None and validation.split != ValidationRecipe().split:
            raise ValueError("remove training.validation.split; drawn screens have no splits")
        budget = self.training.batch_tokens
        if budget is not None and self.data.max_tokens is not None and self.data.max_tokens > budget:
            raise ValueError("data.max_tokens is more than training.batch_tokens, into which every sentence must fit")
        return self

    def to_yaml(self) -> str:
        """Every key with its value, defaults too, so that a run keeps its meaning when defaults change."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def read_recipe(path: Path, overrides: dict[str, str] | None = None) -> Recipe:
    """The recipe in a YAML file, with dotted `overrides` such as {"training.steps": "10"} applied.

    Raises RecipeError naming the file and every key that is unknown, missing or of the wrong kind.
    """
    try:
        content = _read_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
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
    try:
        content[last] = _read_yaml(value)
    except yaml.YAMLError:
        raise RecipeError(f"--{key}: {value!r} is no YAML value") from None


def _explain(problem: dict) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = _fields_at(problem["loc"][:-1])
        nearest = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1, cutoff=0)
        return f"unknown key {where}; did you mean {'.'.join([*map(str, problem['loc'][:-1]), *nearest])}?"
    return f"{where or 'recipe'}: {problem['msg'].removeprefix('Value error, ')}"


def _fields_at(location: tuple) -> list[str]:
    section = Recipe
    for part in location:
        annotation = section.model_fields[part].annotation
        options = getattr(annotation, "__args__", (annotation,))
        section = next(option for option in options if isinstance(option, type) and issubclass(option, Section))
    return list(section.model_fields)
