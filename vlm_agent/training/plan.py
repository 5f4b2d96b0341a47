"""What a run will read, from its recipe: known before any weight is loaded."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from vlm_agent.datasets.columns import read_columns
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.models.build import build_tokenizer, configuration_of
from vlm_agent.models.llama_vit import LlamaViTConfig
from vlm_agent.models.reading import Reading, reading_of
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.elements import ElementSentences
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.sentences.windows import TooLongError, windows
from vlm_agent.training.data import Elements, Item, RowOrder, RowSize, RowStream, Trajectories, chosen_episodes
from vlm_agent.training.flops import StepFlops, load_of
from vlm_agent.training.recipe import Recipe, RecipeError, ValidationRecipe
from vlm_agent.training.shapes import UnknownShapeError, shape_of
from vlm_agent.training.token_counts import TokenCounts, count_tokens
from vlm_agent.training.validation import fixed_sample
from vlm_agent.training.vocabulary import vocabulary_of


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
class Plan:
    """Raises RecipeError, DatasetError or CheckpointError as soon as something is asked that cannot be had."""

    recipe: Recipe

    @cached_property
    def shards(self) -> ShardDataset:
        return ShardDataset(Path(self.recipe.data.shards), split=self.recipe.data.split)

    @cached_property
    def episodes(self) -> list[int]:
        """Indices of the episodes that are read."""
        return chosen_episodes(self.shards, self.recipe.data)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return build_tokenizer(self.recipe.model, vocabulary_of(self.recipe, self.shards, self.episodes))

    @cached_property
    def config(self) -> PretrainedConfig:
        """Of the model."""
        return configuration_of(self.recipe.model, self.tokenizer)

    @cached_property
    def reading(self) -> Reading:
        return reading_of(self.config)

    @cached_property
    def sentences(self) -> TrajectorySentences:
        return self.reading.sentences(self.tokenizer, self.recipe.action_language.build())

    @property
    def longest(self) -> int | None:
        """The most tokens that a sentence may have."""
        data, training = self.recipe.data, self.recipe.training
        return training.batch_tokens if data.max_tokens is None else data.max_tokens

    @cached_property
    def row_size(self) -> RowSize:
        training = self.recipe.training
        if training.batch_tokens is not None:
            return RowSize(tokens=training.batch_tokens)
        return RowSize(sentences=1 if training.batch_size is None else training.batch_size)

    @cached_property
    def token_counts(self) -> TokenCounts:
        """Of all episodes of the split, from columns alone."""
        return count_tokens(read_columns(self.shards), self.sentences)

    @cached_property
    def order(self) -> RowOrder:
        return RowOrder(self._items(self.shards, self.episodes), self.row_size, self.recipe.seed)

    @property
    def rows_per_step(self) -> int:
        return self.recipe.training.accumulation * int(os.environ.get("WORLD_SIZE", "1"))

    @cached_property
    def steps(self) -> int:
        return self.steps_of(self.rows_per_step)

    def steps_of(self, rows: int) -> int:
        """The optimiser steps of the run where each takes so many rows."""
        training = self.recipe.training
        if training.steps is not None:
            return training.steps
        return -(-self.order.rows_in(training.epochs) // rows)

    def stream(self) -> RowStream:
        rows = CountedRows(self.reading.rows, self._flops())
        return RowStream(self.order, self.steps * self.rows_per_step, self._writer(self.shards), rows)

    def _flops(self) -> StepFlops | None:
        """None for a model whose arithmetic nobody has written down."""
        recipe = self.recipe
        try:
            shape = shape_of(self.config)
        except UnknownShapeError:
            return None
        return StepFlops(shape, recipe.model.train, recipe.model.lora.rank, recipe.training.gradient_checkpointing)

    def validation_rows(self, validation: ValidationRecipe) -> RowStream:
        """The rows of the fixed sample, each once."""
        shards = ShardDataset(Path(self.recipe.data.shards), split=validation.split)
        if not len(shards):
            raise RecipeError(f"{self.recipe.data.shards} has no episode in split {validation.split} to validate on")
        chosen = fixed_sample(shards.ids, shards.subsets, validation.episodes)
        order = RowOrder(self._items(shards, chosen), self.row_size, seed=0)
        return RowStream(order, order.rows_in(1), self._writer(shards), self.reading.rows)

    def _items(self, shards: ShardDataset, episodes: Sequence[int]) -> list[Item]:
        if self.longest is None:
            return [Item(episode) for episode in episodes]
        counts = self.token_counts if shards is self.shards else count_tokens(read_columns(shards), self.sentences)
        sentences = self.sentences
        saved = len(sentences.before_screen(is_first=False)) - len(sentences.before_screen(is_first=True))
        found = []
        for episode in episodes:
            try:
                cut = windows(int(counts.goal[episode]), counts.steps_of(episode).tolist(), self.longest, saved)
            except TooLongError as error:
                raise RecipeError(
                    f"episode {shards.ids[episode]}: {error}; raise training.batch_tokens (or data.max_tokens), or "
                    "lower the tokens of a screen"
                ) from None
            found += [Item(episode, window) for window in cut]
        return found

    def _writer(self, shards: ShardDataset) -> Trajectories | Elements:
        config = self.config
        grid = config.visual_grid if isinstance(config, LlamaViTConfig) and config.element_loss else None
        if self.recipe.data.sentences == "elements":
            return Elements(shards, ElementSentences(self.sentences, self.recipe.data.items), grid)
        return Trajectories(shards, self.sentences, grid)
