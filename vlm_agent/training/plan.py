"""What a run will read, from its recipe: known before any weight is loaded."""

import hashlib
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from vlm_agent.datasets.columns import read_columns
from vlm_agent.datasets.shards import MANIFEST, ShardDataset
from vlm_agent.models.build import build_tokenizer, configuration_of
from vlm_agent.models.llama_vit import LlamaViTConfig
from vlm_agent.models.reading import Reading, reading_of
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.elements import ElementSentences
from vlm_agent.sentences.lessons import Lessons
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.sentences.windows import TooLongError, single_steps, windows
from vlm_agent.training.data import (
    HELD_OUT,
    DrawnLessons,
    Elements,
    EndlessOrder,
    Item,
    RowOrder,
    RowSize,
    RowStream,
    Trajectories,
    chosen_episodes,
)
from vlm_agent.training.flops import StepFlops, load_of
from vlm_agent.training.recipe import Recipe, RecipeError, ValidationRecipe
from vlm_agent.training.shapes import UnknownShapeError, shape_of
from vlm_agent.training.token_counts import TokenCounts, count_tokens
from vlm_agent.training.validation import fixed_sample
from vlm_agent.training.vocabulary import vocabulary_of, vocabulary_of_drawn

_LOOKED_AT = 4


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
        if self.recipe.data.shards is None:
            raise RecipeError("data.drawn: screens drawn during the run have no shards, episodes or lengths")
        return ShardDataset(Path(self.recipe.data.shards), split=self.recipe.data.split)

    @cached_property
    def episodes(self) -> list[int]:
        """Indices of the episodes that are read."""
        return chosen_episodes(self.shards, self.recipe.data)

    @property
    def manifest(self) -> dict | None:
        """Of the shards that are read; None where the data is drawn during the run."""
        return None if self.recipe.data.drawn is not None else self.shards.manifest

    @cached_property
    def data_digest(self) -> str:
        """sha256 of what decides the data: the shards' manifest, or some rows of what is drawn.

        Drawn screens hang on fonts, word lists and the drawing itself; a run that goes on must draw the same.
        """
        if self.recipe.data.drawn is None:
            return hashlib.sha256((Path(self.recipe.data.shards) / MANIFEST).read_bytes()).hexdigest()
        digest, lessons = hashlib.sha256(), self._lessons()
        for writer in (lessons, replace(lessons, dense=0)):
            for number in range(_LOOKED_AT):
                sentence = writer(number, random.Random(f"digest {number}"))  # noqa: S311 (no secret)
                digest.update(repr((sentence.input_ids, sentence.labels)).encode())
                digest.update(b"".join(screen.tobytes() for screen in sentence.screens))
        return digest.hexdigest()

    @property
    def reads(self) -> str:
        """What is read, in a few words."""
        if self.recipe.data.drawn is not None:
            lessons = self.steps * self.rows_per_step * self.row_size.sentences
            dense = min(lessons, self.recipe.data.drawn.dense)
            return f"{lessons:,} lessons on screens drawn as they are needed, the first {dense:,} of whole screens"
        return f"{len(self.episodes)} episodes, {len(self.order.items)} sentences"

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        if self.recipe.data.drawn is not None:
            return build_tokenizer(self.recipe.model, vocabulary_of_drawn(self.recipe))
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
        sentences = self.reading.sentences(self.tokenizer, self.recipe.action_language.build())
        return replace(sentences, grey=self.recipe.data.control == "grey_screens")

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
        sentences = 1 if training.batch_size is None else training.batch_size
        if self.recipe.data.control == "no_history":
            # As many single steps as whole episodes have: or this control would learn less than what it controls.
            lengths = self.token_counts.lengths[self.episodes]
            sentences = round(sentences * float(lengths.mean()))
        return RowSize(sentences=sentences)

    @cached_property
    def token_counts(self) -> TokenCounts:
        """Of all episodes of the split, from columns alone."""
        return count_tokens(read_columns(self.shards), self.sentences)

    @cached_property
    def order(self) -> RowOrder | EndlessOrder:
        if self.recipe.data.drawn is not None:
            return EndlessOrder(self.row_size.sentences, self.recipe.seed)
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
        writer = self._lessons() if self.recipe.data.drawn is not None else self._writer(self.shards)
        return RowStream(self.order, self.steps * self.rows_per_step, writer, rows)

    def _lessons(self) -> DrawnLessons:
        drawn = self.recipe.data.drawn
        return DrawnLessons(Lessons(self.sentences, drawn.items), drawn.dense, self._grid())

    def _flops(self) -> StepFlops | None:
        """None for a model whose arithmetic nobody has written down."""
        recipe = self.recipe
        try:
            shape = shape_of(self.config)
        except UnknownShapeError:
            return None
        return StepFlops(shape, recipe.model.train, recipe.model.lora.rank, recipe.training.gradient_checkpointing)

    def validation_rows(self, validation: ValidationRecipe) -> RowStream:
        """The rows of the fixed sample, each once; of drawn lessons, others than any that is learned."""
        if self.recipe.data.drawn is not None:
            order = EndlessOrder(self.row_size.sentences, seed=HELD_OUT)
            both_forms = replace(self._lessons(), dense=0)
            return RowStream(order, -(-validation.episodes // order.count), both_forms, self.reading.rows)
        shards = ShardDataset(Path(self.recipe.data.shards), split=validation.split)
        if not len(shards):
            raise RecipeError(f"{self.recipe.data.shards} has no episode in split {validation.split} to validate on")
        chosen = fixed_sample(shards.ids, shards.subsets, validation.episodes)
        order = RowOrder(self._items(shards, chosen), self.row_size, seed=0)
        return RowStream(order, order.rows_in(1), self._writer(shards), self.reading.rows)

    def _items(self, shards: ShardDataset, episodes: Sequence[int]) -> list[Item]:
        if self.recipe.data.sentences == "elements":
            return [Item(episode) for episode in episodes]
        counts = self.token_counts if shards is self.shards else count_tokens(read_columns(shards), self.sentences)
        cutter = single_steps if self.recipe.data.control == "no_history" else windows
        sentences = self.sentences
        saved = len(sentences.before_screen(is_first=False)) - len(sentences.before_screen(is_first=True))
        found = []
        for episode in episodes:
            goal, steps = int(counts.goal[episode]), counts.steps_of(episode).tolist()
            try:
                cut = cutter(goal, steps, self.longest, saved)
            except TooLongError as error:
                raise RecipeError(
                    f"episode {shards.ids[episode]}: {error}; raise training.batch_tokens (or data.max_tokens), or "
                    "lower the tokens of a screen"
                ) from None
            self._check_context(shards.ids[episode], max(window.tokens for window in cut))
            found += [Item(episode, window) for window in cut]
        return found

    def _check_context(self, episode_id: str, tokens: int) -> None:
        """Beyond the positions that a model was made for it reads on, and nobody is told that it understands less."""
        context = getattr(self.config.get_text_config(), "max_position_embeddings", None)
        if context is not None and tokens > context:
            raise RecipeError(
                f"episode {episode_id} has {tokens} tokens, and the language model was made for {context}; cut such "
                f"episodes into windows by data.max_tokens: {context}"
            )

    def _writer(self, shards: ShardDataset) -> Trajectories | Elements:
        grid = self._grid()
        if self.recipe.data.sentences == "elements":
            return Elements(shards, ElementSentences(self.sentences, self.recipe.data.items), grid)
        return Trajectories(shards, self.sentences, grid)

    def _grid(self) -> tuple[int, int] | None:
        """That of the labels of what lies under each visual token, where the model is to be told and can see it."""
        config, blind = self.config, self.recipe.data.control == "grey_screens"
        told = isinstance(config, LlamaViTConfig) and config.element_loss and not blind
        return config.visual_grid if told else None
