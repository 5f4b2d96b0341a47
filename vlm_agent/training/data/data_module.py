"""The data module of a run: tokenizer, rows, number of steps and validation rows, known before any weight is loaded."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from vlm_agent.errors import RecipeError
from vlm_agent.models.build import Vocabulary, build_tokenizer, configuration_of
from vlm_agent.models.cost import CostModel, TrainingFlops, Workload
from vlm_agent.models.family import Processor, family_of, processor_of
from vlm_agent.recipe.run import Recipe, ValidationRecipe
from vlm_agent.sentences.templates import CHAT_TURNS_KEY
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.training.data.stream import Batches, Order, RowStream


@dataclass(frozen=True)
class Note:
    """What a user should know about the data. `text`: lines for the terminal. `figures`: JSON values, `name`d in the
    figures of run.json."""

    name: str
    text: str
    figures: dict[str, Any]

    @classmethod
    def listing(cls, name: str, head: str, count: int, first: Sequence[str]) -> "Note":
        """On `count` cases, under the line `head`; `first`: a line for each of the first."""
        more = count - len(first)
        lines = [head, *(f"  {line}" for line in first), *([f"  … and {more:,} more"] if more else [])]
        return cls(name, "\n".join(lines), {"count": count, "first": list(first)})


@dataclass(frozen=True)
class DataModule(ABC):
    """The data of a recipe. `ShardDataModule` reads shards, `ChatDataModule` reads chats.

    Every attribute raises RecipeError, DatasetError or CheckpointError if the recipe or its files do not allow it.
    """

    recipe: Recipe

    @property
    @abstractmethod
    def manifest(self) -> dict | None:
        """The manifest of the shards; None without shards."""

    @property
    @abstractmethod
    def data_digest(self) -> str:
        """sha256 of everything that decides the data: a resumed run must read the same."""

    @property
    def learned_ids(self) -> Sequence[str] | None:
        """The ids of the recorded episodes that the run learns from; None if they are unknown."""
        return None

    @property
    @abstractmethod
    def reads(self) -> str:
        """A short description of the data, for the console."""

    @abstractmethod
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of a tokenizer from scratch."""

    @property
    def order(self) -> Order:
        raise NotImplementedError  # rollouts have no order

    def writer(self) -> Callable:
        """Builds a sentence from an item of the order and the random generator of that sentence."""
        raise NotImplementedError

    def validation_rows(self, validation: ValidationRecipe) -> RowStream:
        """The rows of the fixed validation sample, each once."""
        raise NotImplementedError

    def largest_row(self) -> Workload:
        """The largest row of the run: an upper bound. Raises RecipeError if sentences are unknown before the run."""
        raise RecipeError(f"the sentences of {self.recipe.data.sentences} are known only during the run")

    @abstractmethod
    def steps_of(self, rows: int) -> int:
        """The number of optimiser steps with `rows` rows per step."""

    @property
    def notes(self) -> list[Note]:
        """What a user should know about the data before the run starts."""
        return []

    def complete(self, config: PretrainedConfig) -> None:
        """Adds to the model's configuration what is known from the data, in place."""
        return

    def record(self, run: Path) -> None:
        """Writes into the run folder what agents need of the data."""
        return

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        tokenizer = build_tokenizer(self.recipe.model, self.vocabulary())
        tokenizer.init_kwargs.pop(CHAT_TURNS_KEY, None)  # of a base that was trained on chats
        return tokenizer

    @cached_property
    def config(self) -> PretrainedConfig:
        """The configuration of the model."""
        return configuration_of(self.recipe.model, self.tokenizer)

    @cached_property
    def processor(self) -> Processor:
        return processor_of(self.config)

    @cached_property
    def sentences(self) -> TrajectorySentences:
        data, language = self.recipe.data, self.recipe.action_language.build()
        sentences = self.processor.sentences(self.tokenizer, language, data)
        return self.with_references(replace(sentences, grey=data.control == "grey_screens"))

    def with_references(self, sentences: TrajectorySentences) -> TrajectorySentences:
        """With the demonstrations that `data.references` asks for."""
        return sentences

    @property
    def rows_per_step(self) -> int:
        return self.recipe.training.accumulation * int(os.environ.get("WORLD_SIZE", "1"))

    @cached_property
    def steps(self) -> int:
        return self.steps_of(self.rows_per_step)

    def stream(self) -> Batches:
        return RowStream(self.order, self.steps * self.rows_per_step, self.writer(), self.processor.collate)

    @property
    def cost(self) -> CostModel:
        """The cost of the model. Raises UnknownCostError if it is unknown."""
        return family_of(self.config).cost(self.config)

    def flops(self, checkpointed: int) -> TrainingFlops:
        """The FLOPs of training this model with so many layers checkpointed. Raises the error of `cost`."""
        return TrainingFlops(self.cost, self.recipe.model.train, self.recipe.model.lora.rank, checkpointed)

    def label_grid(self) -> tuple[int, int] | None:
        """(rows, columns) of the element labels of a screen; None without an element loss.

        With grey screens, or with vision tower and projector frozen, the visual tokens cannot change: the loss would
        only move the word embeddings towards them.
        """
        train = self.recipe.model.train
        blind = self.recipe.data.control == "grey_screens" or {train.vision, train.projector} == {"frozen"}
        return None if blind else self.processor.label_grid
