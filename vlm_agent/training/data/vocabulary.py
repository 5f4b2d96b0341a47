"""The words of the episodes of a run, for a tokenizer from scratch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode
from vlm_agent.models.build import Vocabulary
from vlm_agent.recipe.run import Recipe
from vlm_agent.sentences.html import SCREEN_PHRASES, screen_html


def vocabulary_of(recipe: Recipe, shards: ShardDataset, indices: list[int]) -> Vocabulary:
    """The vocabulary of a word tokenizer: the phrases of the action language, and all texts of these episodes that
    sentences may have."""
    episodes = (shards.without_pixels(index) for index in indices)
    language, coat = recipe.action_language.build().vocabulary(), recipe.data.coat
    parts = (*coat.read, *coat.learned)
    if recipe.model.is_text:
        language = replace(language, phrases=(*language.phrases, *SCREEN_PHRASES))
    return Vocabulary(language, (text for episode in episodes for text in _texts(episode, parts, recipe.model.is_text)))


def _texts(episode: Episode, parts: Sequence[str], as_html: bool) -> Iterator[str]:
    yield episode.goal
    for step in episode.steps:
        yield step.action.text
        if as_html:
            yield screen_html(step.screen)
        else:
            yield from (element.name for element in step.elements)
        if step.coat is not None:
            yield from (getattr(step.coat, part) for part in parts)
