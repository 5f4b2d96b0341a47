"""The words of the episodes of a run, for a tokenizer from scratch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Action, Episode, Screen
from vlm_agent.models.build import Vocabulary
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.run import Recipe
from vlm_agent.sentences.html import SCREEN_PHRASES, screen_html
from vlm_agent.sentences.notes import FORMS, IN_WORDS
from vlm_agent.sentences.windows import past_of


def vocabulary_of(recipe: Recipe, shards: ShardDataset, indices: list[int]) -> Vocabulary:
    """The vocabulary of a word tokenizer: the phrases of the action language, and all texts of these episodes that
    sentences may have."""
    episodes = (shards.without_pixels(index) for index in indices)
    language = recipe.action_language.build().vocabulary()
    if recipe.model.is_text:
        language = replace(language, phrases=(*language.phrases, *SCREEN_PHRASES))
    names, in_words = _note_names(recipe.data), _words_of_actions(recipe)
    texts = (text for one in episodes for text in _texts(one, names, recipe.model.is_text, in_words))
    return Vocabulary(language, texts)


def _note_names(data: DataRecipe) -> list[str]:
    """The notes whose words are known: those of the sentences, and those with the role of a learned one, because a
    plan and its immediate step have the same words."""
    roles = {FORMS[name].role for name in data.notes} - {None}
    return [name for name, form in FORMS.items() if name in data.notes or form.role in roles]


def _words_of_actions(recipe: Recipe) -> Callable[[Action, Screen], str | None] | None:
    """The words of earlier steps; None where these are notes, or where no step is in words."""
    has_actions = past_of(recipe.data) is not None and IN_WORDS not in recipe.data.notes
    return partial(_own_words, recipe.action_language.build()) if has_actions else None


def _own_words(language: ActionLanguage, action: Action, screen: Screen) -> str | None:
    """The words of an action, where the language has others than the action's text."""
    words = language.in_words(action, screen)
    return None if words == language.encode(action, screen) else words


def _texts(
    episode: Episode,
    names: Sequence[str],
    as_html: bool,
    in_words: Callable[[Action, Screen], str | None] | None,
) -> Iterator[str]:
    """`names`: of notes. `in_words`: of earlier steps, in a language whose actions have other texts than the screen."""
    yield episode.goal
    for step in episode.steps:
        words = None if in_words is None else in_words(step.action, step.screen)
        if words is not None:
            yield words
        yield step.action.text
        if as_html:
            yield screen_html(step.screen)
        else:
            yield from (element.name for element in step.elements)
        for name in names:
            yield from step.notes.get(name, "").split("\n")
