"""The stream of sentences a run reads: numbered, deterministic, the same whatever reads it."""

import random
from functools import lru_cache

import numpy as np
import torch
from torch.utils.data import Dataset

from vlm_agent.datasets.mixture import in_mixture
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.sentences import IGNORED, Sentence
from vlm_agent.sentences.elements import ElementSentences, label_elements
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.training.recipe import DataRecipe, RecipeError

_EMPTY_CELLS_NAMED = 0.1
_BATCHES_SORTED_TOGETHER = 16


def chosen_episodes(shards: ShardDataset, recipe: DataRecipe) -> list[int]:
    """Indices of the episodes that the recipe's mixture and limit keep, the limit spread over all of them."""
    indices = [
        index
        for index, (episode_id, subset) in enumerate(zip(shards.ids, shards.subsets, strict=True))
        if in_mixture(episode_id, subset, recipe.mixture)
    ]
    if not indices:
        raise RecipeError(f"{recipe.shards} has no episode in split {recipe.split} that the mixture keeps")
    count = len(indices) if recipe.limit is None else min(recipe.limit, len(indices))
    return [indices[number * len(indices) // count] for number in range(count)]


class SentenceStream(Dataset):
    """Sentence number k of a run, for k in 0 … `total`-1.

    Each pass over the episodes is shuffled by the seed; within stretches of `_BATCHES_SORTED_TOGETHER` batches,
    episodes of like length meet in one batch, so that little is spent on padding.
    """

    def __init__(self, shards: ShardDataset, indices: list[int], total: int, batch_size: int, seed: int):
        self.shards, self.indices, self.total = shards, indices, total
        self.batch_size, self.seed = batch_size, seed
        self._order = lru_cache(maxsize=1)(self._shuffled)

    def __len__(self) -> int:
        return self.total

    def locate(self, number: int) -> tuple[int, random.Random]:
        """The episode that sentence `number` is about, and a generator that belongs to this sentence alone."""
        turn, position = divmod(number, len(self.indices))
        return self._order(turn)[position], random.Random(f"{self.seed}/{number}")  # noqa: S311 (no secret)

    def _shuffled(self, turn: int) -> list[int]:
        rng = random.Random(f"{self.seed}/turn/{turn}")  # noqa: S311 (no secret)
        order = rng.sample(self.indices, len(self.indices))
        stretch = self.batch_size * _BATCHES_SORTED_TOGETHER
        # What completes the last batch of the turn before; without it every batch of this turn would straddle two.
        head = min(-turn * len(order) % self.batch_size, len(order))
        batches = []
        for start in range(head, len(order), stretch):
            near = sorted(order[start : start + stretch], key=lambda index: len(self.shards.screen_sizes[index]))
            here = [near[at : at + self.batch_size] for at in range(0, len(near), self.batch_size)]
            batches += rng.sample(here, len(here))
        # A short batch anywhere but at the end would shift every later batch over a boundary between lengths.
        batches.sort(key=lambda batch: len(batch) < self.batch_size)
        return order[:head] + [index for batch in batches for index in batch]

    def __getstate__(self) -> dict:
        return {key: value for key, value in self.__dict__.items() if key != "_order"}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._order = lru_cache(maxsize=1)(self._shuffled)


class TrajectoryStream(SentenceStream):
    """Whole episodes."""

    def __init__(self, *stream, sentences: TrajectorySentences, grid: tuple[int, int] | None):
        super().__init__(*stream)
        self.sentences, self.grid = sentences, grid

    def __getitem__(self, number: int) -> Sentence:
        index, rng = self.locate(number)
        episode = self.shards[index]
        sentence = self.sentences.build(episode)
        if self.grid:
            sentence.element_labels = [
                label_elements(step, self.grid, self.sentences, _EMPTY_CELLS_NAMED, rng) for step in episode.steps
            ]
        return sentence


class ElementStream(SentenceStream):
    """One screen of an episode, its elements named and placed."""

    def __init__(self, *stream, sentences: ElementSentences, grid: tuple[int, int] | None):
        super().__init__(*stream)
        self.sentences, self.grid = sentences, grid

    def __getitem__(self, number: int) -> Sentence:
        index, rng = self.locate(number)
        step = self.shards.step(index, rng.randrange(len(self.shards.screen_sizes[index])))
        sentence = self.sentences.build(step, rng)
        if self.grid:
            labels = label_elements(step, self.grid, self.sentences.trajectory, _EMPTY_CELLS_NAMED, rng)
            sentence.element_labels = [labels]
        return sentence


def collate(sentences: list[Sentence]) -> dict[str, torch.Tensor]:
    """A batch for `LlamaViT.forward`, padded on the right.

    No attention mask: attention is causal, so nothing real ever sees the padding, which has no labels.
    """
    longest = max(len(sentence.input_ids) for sentence in sentences)
    batch = {
        "input_ids": torch.tensor([_padded(sentence.input_ids, longest, 0) for sentence in sentences]),
        "labels": torch.tensor([_padded(sentence.labels, longest, IGNORED) for sentence in sentences]),
        "screens": torch.from_numpy(np.stack([screen for sentence in sentences for screen in sentence.screens])),
    }
    if sentences[0].element_labels:
        labels = [labels for sentence in sentences for labels in sentence.element_labels]
        batch["element_labels"] = torch.from_numpy(np.stack(labels))
    return batch


def _padded(values: list[int], length: int, padding: int) -> list[int]:
    return values + [padding] * (length - len(values))
