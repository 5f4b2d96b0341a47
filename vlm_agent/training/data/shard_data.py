"""The data module of a run on shards."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from transformers import PretrainedConfig

from vlm_agent.datasets.shards.dataset import ShardDataset, manifest_content
from vlm_agent.errors import RecipeError
from vlm_agent.models.build import Vocabulary
from vlm_agent.models.cost import Workload
from vlm_agent.models.family import Processor
from vlm_agent.recipe.run import Recipe, ValidationRecipe
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.training.data.data_module import DataModule, Note
from vlm_agent.training.data.recipe_sentences import vocabulary_of, with_references
from vlm_agent.training.data.sentence_kinds import SENTENCE_KINDS, SentenceKind, Writer
from vlm_agent.training.data.stream import RowOrder, RowSize, RowStream, chosen_episodes
from vlm_agent.training.loop.validation import fixed_sample


def data_module_of(recipe: Recipe) -> DataModule:
    if recipe.data.chats is not None:
        from vlm_agent.training.data.chats.module import ChatDataModule

        return ChatDataModule(recipe)
    return ShardDataModule(recipe)


def check_sentences(recipe: Recipe, config: PretrainedConfig, processor: Processor) -> None:
    """Raises RecipeError for a kind of sentences that the model cannot read."""
    name, readable = recipe.data.sentences, processor.sentence_kinds
    if name not in readable:
        raise RecipeError(
            f"data.sentences: {name} does not fit model.{recipe.model.origin}, a {config.model_type}, which reads "
            f"{' or '.join(readable)}; change data.sentences or the model"
        )


@dataclass(frozen=True)
class ShardDataModule(DataModule):
    @property
    def folder(self) -> Path:
        """The converted folder. Raises RecipeError for a recipe without one."""
        if self.recipe.data.shards is None:
            raise RecipeError("data.shards is missing; name a folder that vlm-agent convert wrote")
        return Path(self.recipe.data.shards)

    @cached_property
    def shards(self) -> ShardDataset:
        return ShardDataset(self.folder, split=self.recipe.data.split)

    @cached_property
    def episodes(self) -> list[int]:
        """Indices of the episodes of the run."""
        return chosen_episodes(self.shards, self.recipe.data)

    @property
    def manifest(self) -> dict:
        return self.shards.manifest

    @property
    def data_digest(self) -> str:
        """sha256 of the content of the shards' manifest, and of other data that the kind of sentences reads."""
        return hashlib.sha256(manifest_content(self.folder) + self.kind.digest()).hexdigest()

    @property
    def learned_ids(self) -> Sequence[str] | None:
        ids = self.shards.ids
        return [ids[index] for index in self.episodes]

    @property
    def reads(self) -> str:
        return f"{len(self.episodes)} episodes, {len(self.order.items)} sentences"

    def vocabulary(self) -> Vocabulary:
        if self.recipe.model.word_tokenizer is None:  # the tokenizer exists: no episode is read
            return Vocabulary(self.recipe.action_language.build().vocabulary(), texts=())
        words = vocabulary_of(self.recipe, self.shards, self.episodes)
        phrases = SENTENCE_KINDS[self.recipe.data.sentences].phrases_of(self.recipe.data)
        return replace(words, language=replace(words.language, phrases=(*words.language.phrases, *phrases)))

    @cached_property
    def kind(self) -> SentenceKind:
        """Raises RecipeError for a kind of sentences that the model cannot read."""
        check_sentences(self.recipe, self.config, self.processor)
        return SENTENCE_KINDS[self.recipe.data.sentences](self, self.shards, self.episodes)

    @cached_property
    def row_size(self) -> RowSize:
        training = self.recipe.training
        if training.batch_tokens is not None:
            return RowSize(tokens=training.batch_tokens)
        sentences = self.kind.sentences_per_row(training.batch_size or 1)
        return RowSize(sentences, by_length=self.recipe.data.group_by_length)

    @cached_property
    def notes(self) -> list[Note]:
        return self.kind.notes()

    def complete(self, config: PretrainedConfig) -> None:
        self.kind.complete(config)

    def record(self, run: Path) -> None:
        self.kind.record(run)

    def with_references(self, sentences: TrajectorySentences) -> TrajectorySentences:
        return with_references(sentences, self.recipe.data.references, self.shards, self.episodes)

    @cached_property
    def order(self) -> RowOrder:
        return RowOrder(self.kind.items(self.shards, self.episodes), self.row_size, self.recipe.seed)

    def largest_row(self) -> Workload:
        return self.kind.count_pass(self.order.items).largest_row(self.row_size)

    def steps_of(self, rows: int) -> int:
        training = self.recipe.training
        if training.steps is not None:
            return training.steps
        if training.epochs is None:
            raise RecipeError("give training.steps or training.epochs")
        return -(-self.order.rows_in(training.epochs) // rows)

    def writer(self) -> Writer:
        return self.kind.writer(self.shards)

    def validation_rows(self, validation: ValidationRecipe) -> RowStream:
        shards = ShardDataset(self.folder, split=validation.split)
        if not len(shards):
            raise RecipeError(f"{self.recipe.data.shards} has no episode in split {validation.split} to validate on")
        chosen = fixed_sample(shards.ids, shards.subsets, validation.episodes)
        order = RowOrder(self.kind.items(shards, chosen), self.row_size, seed=0)
        return RowStream(order, order.rows_in(1), self.kind.writer(shards), self.processor.collate)
