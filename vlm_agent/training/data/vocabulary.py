"""The words of the episodes of a run, for a tokenizer from scratch."""

from collections.abc import Iterator, Sequence

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode
from vlm_agent.models.build import Vocabulary
from vlm_agent.recipe.run import Recipe


def vocabulary_of(recipe: Recipe, shards: ShardDataset, indices: list[int]) -> Vocabulary:
    """The vocabulary of a word tokenizer: the phrases of the action language, and all texts of these episodes that
    sentences may have."""
    episodes = (shards.without_pixels(index) for index in indices)
    language, coat = recipe.action_language.build().vocabulary(), recipe.data.coat
    parts = (*coat.read, *coat.learned)
    return Vocabulary(language, (text for episode in episodes for text in _texts(episode, parts)))


def _texts(episode: Episode, parts: Sequence[str]) -> Iterator[str]:
    yield episode.goal
    for step in episode.steps:
        yield step.action.text
        yield from (element.name for element in step.elements)
        if step.coat is not None:
            yield from (getattr(step.coat, part) for part in parts)
