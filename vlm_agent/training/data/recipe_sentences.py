"""The sentences of a recipe: the words and the references of its episodes, and lengths."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from transformers import PretrainedConfig

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.agents.examples.nearest import Reference
from vlm_agent.agents.examples.of_run import RunReferences, first_of_goals
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode
from vlm_agent.errors import RecipeError
from vlm_agent.models.build import Vocabulary
from vlm_agent.models.family import context_of
from vlm_agent.recipe.data import ReferencesRecipe
from vlm_agent.recipe.run import Recipe
from vlm_agent.sentences.html import SCREEN_PHRASES, screen_html
from vlm_agent.sentences.notes import FORMS, IN_WORDS, UsedNotes
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.sentences.windows import past_of


def whole_lengths(dataset: ShardDataset, sentences: TrajectorySentences) -> np.ndarray:
    """int64 (E,): the tokens of each episode in one sentence, as training writes it."""
    found = (
        sentences.length(sentences.segments(episode, with_swipe_targets=True))
        for episode in dataset.each_without_pixels(range(len(dataset)))
    )
    return np.fromiter(found, np.int64, len(dataset))


def context_length(config: PretrainedConfig) -> int:
    """The context length of the language model; RecipeError if its configuration has none."""
    positions = context_of(config)
    if positions is None:
        raise RecipeError("the language model's configuration names no context length; give one with --budget")
    return positions


def with_references(
    sentences: TrajectorySentences, settings: ReferencesRecipe | None, shards: ShardDataset, episodes: Sequence[int]
) -> TrajectorySentences:
    """`episodes`: numbers of those of the run, in ascending order. Raises EncoderError without the encoder."""
    if settings is None:
        return sentences
    goals = shards.table(["goal"], episodes)["goal"].to_pylist()
    rows = []
    for number, index in enumerate(first_of_goals(goals)):
        episode = shards.without_pixels(episodes[index])
        words = tuple(sentences.in_words(step).rstrip("\n") for step in episode.steps[: settings.max_actions])
        rows.append(Reference(number, episode.id, episode.goal, words))
    return replace(sentences, references=RunReferences.of(rows, settings))


# The words of the episodes, for a tokenizer from scratch.


def vocabulary_of(recipe: Recipe, shards: ShardDataset, indices: list[int]) -> Vocabulary:
    """The vocabulary of a word tokenizer: the phrases of the action language, and all texts of these episodes that
    sentences may have."""
    episodes = shards.each_without_pixels(sorted(indices))
    language, notes = recipe.action_language.build(), recipe.data.notes
    vocabulary = language.vocabulary()
    as_html = recipe.model.is_text or UsedNotes(notes).reads_elements
    if as_html:
        vocabulary = replace(vocabulary, phrases=(*vocabulary.phrases, *SCREEN_PHRASES))
    # Notes with the role of a learned one, too: a plan and its immediate step have the same words.
    roles = {FORMS[name].role for name in notes} - {None}
    names = [name for name, form in FORMS.items() if name in notes or form.role in roles]
    # Actions are words of earlier steps, unless these are notes or no step is in words.
    has_actions = past_of(recipe.data) is not None and IN_WORDS not in notes
    texts = (text for one in episodes for text in _texts(one, names, as_html, language if has_actions else None))
    return Vocabulary(vocabulary, texts)


def _texts(episode: Episode, names: Sequence[str], as_html: bool, language: ActionLanguage | None) -> Iterator[str]:
    """`names`: of notes. `language`: where earlier steps are in its words, if these are not the action's text."""
    yield episode.goal
    for step in episode.steps:
        if language is not None:
            words = language.in_words(step.action, step.screen)
            if words != language.encode(step.action, step.screen):
                yield words
        yield step.action.text
        if as_html:
            yield screen_html(step.screen)
        else:
            yield from (element.name for element in step.elements)
        for name in names:
            yield from step.notes.get(name, "").split("\n")
