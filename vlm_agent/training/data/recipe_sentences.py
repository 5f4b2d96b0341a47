"""The sentences of a recipe without a run: their lengths in any data set, and the model's context length."""

from pathlib import Path

import numpy as np
from transformers import PretrainedConfig

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import RecipeError
from vlm_agent.models.build import Vocabulary, build_tokenizer, configuration_of
from vlm_agent.models.family import context_of, processor_of
from vlm_agent.recipe.run import Recipe
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.training.data.references import with_references
from vlm_agent.training.data.stream import chosen_episodes
from vlm_agent.training.data.vocabulary import vocabulary_of


def recipe_sentences(recipe: Recipe) -> TrajectorySentences:
    """Sentences as training with the recipe builds them.

    A tokenizer from scratch is built from the recipe's shards, as in training. Raises CheckpointError if the tokenizer
    cannot be loaded, and RecipeError and DatasetError as training would.
    """
    tokenizer = build_tokenizer(recipe.model, _words(recipe))
    processor, language = processor_of(configuration_of(recipe.model, tokenizer)), recipe.action_language.build()
    sentences = processor.sentences(tokenizer, language, recipe.data)
    if recipe.data.references is None:
        return sentences
    shards = _shards(recipe)
    return with_references(sentences, recipe.data.references, shards, chosen_episodes(shards, recipe.data))


def whole_lengths(dataset: ShardDataset, sentences: TrajectorySentences) -> np.ndarray:
    """int64 (E,): the tokens of each episode in one sentence, as training writes it."""
    found = (
        sentences.length(sentences.segments(episode, with_swipe_targets=True))
        for episode in dataset.each_without_pixels(range(len(dataset)))
    )
    return np.fromiter(found, np.int64, len(dataset))


def context_length(recipe: Recipe) -> int:
    """The context length of the recipe's language model; RecipeError if its configuration has none."""
    config: PretrainedConfig = configuration_of(recipe.model, build_tokenizer(recipe.model, _words(recipe)))
    positions = context_of(config)
    if positions is None:
        raise RecipeError("the language model's configuration names no context length; give one with --budget")
    return positions


def _shards(recipe: Recipe) -> ShardDataset:
    if recipe.data.shards is None:
        raise RecipeError("data.shards is missing; name a folder that vlm-agent convert wrote")
    return ShardDataset(Path(recipe.data.shards), split=recipe.data.split)


def _words(recipe: Recipe) -> Vocabulary:
    if recipe.model.word_tokenizer is None:
        return Vocabulary(recipe.action_language.build().vocabulary(), texts=())
    shards = _shards(recipe)
    return vocabulary_of(recipe, shards, chosen_episodes(shards, recipe.data))
