"""The words of a run's episodes, for a tokenizer that is made of them."""

from collections.abc import Iterator

from vlm_agent.action_languages.binned import PHRASES
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.episodes import Episode
from vlm_agent.models.build import Vocabulary
from vlm_agent.training.recipe import Recipe


def vocabulary_of(recipe: Recipe, shards: ShardDataset, indices: list[int]) -> Vocabulary:
    """What a word tokenizer is made of: the language's phrases, and every text of these episodes."""
    episodes = (shards.without_pixels(index) for index in indices)
    return Vocabulary(PHRASES, recipe.action_language.bins, (text for episode in episodes for text in _texts(episode)))


def _texts(episode: Episode) -> Iterator[str]:
    yield episode.goal
    for step in episode.steps:
        yield step.action.text
        yield from (element.name for element in step.elements)
