"""The data module of a run on shards."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from vlm_agent.datasets.shards.dataset import MANIFEST, ShardDataset
from vlm_agent.errors import RecipeError
from vlm_agent.models.build import Vocabulary
from vlm_agent.recipe.run import Recipe
from vlm_agent.recipe.training import ValidationRecipe
from vlm_agent.sentences.elements import ElementSentences
from vlm_agent.sentences.trajectory import unwritable_line
from vlm_agent.sentences.windows import TooLongError, single_steps, windows
from vlm_agent.training.data.count_cache import CountCache, cache_folder
from vlm_agent.training.data.data_module import LISTED, DataModule, Unwritable
from vlm_agent.training.data.drawn_data import DrawnDataModule
from vlm_agent.training.data.stream import Elements, Item, RowOrder, RowSize, RowStream, Trajectories, chosen_episodes
from vlm_agent.training.data.token_counts import TokenCounts, columns_for, count_tokens
from vlm_agent.training.data.vocabulary import vocabulary_of
from vlm_agent.training.loop.validation import fixed_sample


def data_module_of(recipe: Recipe) -> DataModule:
    return ShardDataModule(recipe) if recipe.data.drawn is None else DrawnDataModule(recipe)


@dataclass(frozen=True)
class ShardDataModule(DataModule):
    @property
    def folder(self) -> Path:
        """The converted folder. Raises RecipeError for a recipe without one."""
        if self.recipe.data.shards is None:
            raise RecipeError("data.shards is missing")
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
        """sha256 of the manifest of the shards."""
        return hashlib.sha256((self.folder / MANIFEST).read_bytes()).hexdigest()

    @property
    def reads(self) -> str:
        return f"{len(self.episodes)} episodes, {len(self.order.items)} sentences"

    def vocabulary(self) -> Vocabulary:
        return vocabulary_of(self.recipe, self.shards, self.episodes)

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens of a sentence; None without a limit."""
        data, training = self.recipe.data, self.recipe.training
        return training.batch_tokens if data.max_tokens is None else data.max_tokens

    @cached_property
    def row_size(self) -> RowSize:
        training = self.recipe.training
        if training.batch_tokens is not None:
            return RowSize(tokens=training.batch_tokens)
        sentences = self.sentences_per_row
        if self.recipe.data.control == "no_history":
            # As many single steps as the episodes have, or a row of the control would hold fewer supervised actions.
            sentences = round(sentences * float(self.token_counts.lengths.mean()))
        return RowSize(sentences=sentences)

    @cached_property
    def token_counts(self) -> TokenCounts:
        """The tokens of the episodes of the run."""
        return self._counted(self.shards, self.episodes)

    @cached_property
    def unwritable_actions(self) -> Unwritable:
        if self.recipe.data.sentences != "trajectory":
            return Unwritable()
        steps = self.token_counts.unwritable_steps()
        return Unwritable(len(steps), tuple(self._unwritable_line(*each) for each in steps[:LISTED]))

    def _unwritable_line(self, episode: int, step: int) -> str:
        return unwritable_line(self.shards.ids[episode], step, self.shards.without_pixels(episode).steps[step].action)

    def _counted(self, shards: ShardDataset, episodes: Sequence[int]) -> TokenCounts:
        """`episodes`: numbers in ascending order."""
        columns = columns_for(shards, self.sentences, episodes=episodes)
        cache = CountCache(cache_folder(), self.recipe.action_language.model_dump(mode="json"))
        return count_tokens(columns, self.sentences, episodes, cache)

    @cached_property
    def order(self) -> RowOrder:
        return RowOrder(self._items(self.shards, self.episodes), self.row_size, self.recipe.seed)

    def steps_of(self, rows: int) -> int:
        training = self.recipe.training
        if training.steps is not None:
            return training.steps
        if training.epochs is None:
            raise RecipeError("give training.steps or training.epochs")
        return -(-self.order.rows_in(training.epochs) // rows)

    def writer(self) -> Trajectories | Elements:
        return self._writer(self.shards)

    def validation_rows(self, validation: ValidationRecipe) -> RowStream:
        shards = ShardDataset(self.folder, split=validation.split)
        if not len(shards):
            raise RecipeError(f"{self.recipe.data.shards} has no episode in split {validation.split} to validate on")
        chosen = fixed_sample(shards.ids, shards.subsets, validation.episodes)
        order = RowOrder(self._items(shards, chosen), self.row_size, seed=0)
        return RowStream(order, order.rows_in(1), self._writer(shards), self.processor.collate)

    def _items(self, shards: ShardDataset, episodes: Sequence[int]) -> list[Item]:
        if self.recipe.data.sentences == "elements":
            return [Item(episode) for episode in episodes]
        counts = self.token_counts if shards is self.shards else self._counted(shards, sorted(episodes))
        cutter = single_steps if self.recipe.data.control == "no_history" else windows
        sentences = self.sentences
        saved = len(sentences.before_screen(is_first=False)) - len(sentences.before_screen(is_first=True))
        found = []
        for episode, row in zip(episodes, counts.rows_of(np.array(episodes)).tolist(), strict=True):
            goal, steps = int(counts.goal[row]), counts.steps_of(row).tolist()
            try:
                cut = cutter(goal, steps, self.longest, saved)
            except TooLongError as error:
                raise RecipeError(
                    f"episode {shards.ids[episode]}: {error}; raise training.batch_tokens (or data.max_tokens), or "
                    "lower the tokens of a screen"
                ) from None
            self._check_context(shards.ids[episode], max(window.tokens for window in cut))
            writable = counts.writable_steps_of(row)
            found += [Item(episode, window) for window in cut if writable[window.first_supervised : window.last].any()]
        if not found:
            raise RecipeError(
                f"the tokenizer can write none of the actions in {self.folder}; choose another tokenizer or "
                "action_language"
            )
        return found

    def _check_context(self, episode_id: str, tokens: int) -> None:
        """Longer sentences run without an error, and the model predicts worse without a sign of it."""
        context = getattr(self.config.get_text_config(), "max_position_embeddings", None)
        if context is not None and tokens > context:
            raise RecipeError(
                f"episode {episode_id} has {tokens} tokens, and the language model was made for {context}; cut such "
                f"episodes into windows by data.max_tokens: {context}"
            )

    def _writer(self, shards: ShardDataset) -> Trajectories | Elements:
        grid = self.label_grid()
        if self.recipe.data.sentences == "elements":
            return Elements(shards, ElementSentences(self.sentences, self.recipe.data.items), grid)
        return Trajectories(shards, self.sentences, grid)
