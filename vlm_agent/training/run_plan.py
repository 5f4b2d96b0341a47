"""What a run will read, whatever its data: known before any weight is loaded."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from vlm_agent.models.build import Vocabulary, build_tokenizer, configuration_of
from vlm_agent.models.llama_vit import LlamaViTConfig
from vlm_agent.models.reading import Reading, reading_of
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.training.data import EndlessOrder, RowOrder, RowStream
from vlm_agent.training.flops import StepFlops, load_of
from vlm_agent.training.recipe import Recipe, ValidationRecipe
from vlm_agent.training.shapes import UnknownShapeError, shape_of


@dataclass(frozen=True)
class CountedRows:
    """Rows with the floating point operations that a model takes to learn from each, as `flops`.

    Counted where rows are made: on a GPU, asking a row for its lengths would wait for all that was asked before.
    """

    rows: Callable[[list[Sentence]], dict]
    flops: StepFlops | None

    def __call__(self, sentences: list[Sentence]) -> dict:
        row = self.rows(sentences)
        return row if self.flops is None else row | {"flops": self.flops.of(load_of(row)).model}


@dataclass(frozen=True)
class RunPlan(ABC):
    """Raises RecipeError, DatasetError or CheckpointError as soon as something is asked that cannot be had.

    Data from shards: `plan.Plan`; screens drawn during the run: `drawn_plan.DrawnPlan`.
    """

    recipe: Recipe

    @property
    @abstractmethod
    def manifest(self) -> dict | None:
        """Of the shards that are read; None where there are none."""

    @property
    @abstractmethod
    def data_digest(self) -> str:
        """sha256 of what decides the data: a run that goes on must read the same."""

    @property
    @abstractmethod
    def reads(self) -> str:
        """What is read, in a few words."""

    @abstractmethod
    def vocabulary(self) -> Vocabulary:
        """What a tokenizer from scratch is made of."""

    @property
    @abstractmethod
    def order(self) -> RowOrder | EndlessOrder: ...

    @abstractmethod
    def writer(self) -> Callable:
        """Makes a sentence of an item of the order, and a generator of its own."""

    @abstractmethod
    def validation_rows(self, validation: ValidationRecipe) -> RowStream:
        """The rows of the fixed sample, each once."""

    @abstractmethod
    def steps_of(self, rows: int) -> int:
        """The optimiser steps of the run where each takes so many rows."""

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return build_tokenizer(self.recipe.model, self.vocabulary())

    @cached_property
    def config(self) -> PretrainedConfig:
        """Of the model."""
        return configuration_of(self.recipe.model, self.tokenizer)

    @cached_property
    def reading(self) -> Reading:
        return reading_of(self.config)

    @cached_property
    def sentences(self) -> TrajectorySentences:
        sentences = self.reading.sentences(self.tokenizer, self.recipe.action_language.build())
        return replace(sentences, grey=self.recipe.data.control == "grey_screens")

    @property
    def sentences_a_row(self) -> int:
        """Where rows are not filled by tokens."""
        size = self.recipe.training.batch_size
        return 1 if size is None else size

    @property
    def rows_per_step(self) -> int:
        return self.recipe.training.accumulation * int(os.environ.get("WORLD_SIZE", "1"))

    @cached_property
    def steps(self) -> int:
        return self.steps_of(self.rows_per_step)

    def stream(self) -> RowStream:
        rows = CountedRows(self.reading.rows, self._flops())
        return RowStream(self.order, self.steps * self.rows_per_step, self.writer(), rows)

    def _flops(self) -> StepFlops | None:
        """None for a model whose arithmetic nobody has written down."""
        recipe = self.recipe
        try:
            shape = shape_of(self.config)
        except UnknownShapeError:
            return None
        return StepFlops(shape, recipe.model.train, recipe.model.lora.rank, recipe.training.gradient_checkpointing)

    def label_grid(self) -> tuple[int, int] | None:
        """That of the labels of what lies under each visual token, where the model is to be told, and learns to see.

        Told of tokens that stay as they are, it would bend its words towards them.
        """
        config, train = self.config, self.recipe.model.train
        blind = self.recipe.data.control == "grey_screens" or {train.vision, train.projector} == {"frozen"}
        told = isinstance(config, LlamaViTConfig) and config.element_loss and not blind
        return config.visual_grid if told else None
