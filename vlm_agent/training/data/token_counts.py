"""The number of tokens of trajectories under a recipe, from columns alone: neither pixels nor weights are read.

A trajectory has the tokens of its goal and, for each step, of the screen, the cue and the action. So it is enough to
tokenise each distinct goal and action once, and to look up each distinct screen size. The action language finds actions
with equal text by arithmetic on arrays (`ActionLanguage.text_keys`). Most taps share a text with others; nearly every
swipe of a person has a text of its own, so that a million steps have about a hundred thousand different texts.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from transformers import PretrainedConfig

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.action_languages.names import spoken_name
from vlm_agent.datasets.shards.columns import Columns, listed_elements, read_columns, touched_names, touched_numbers
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Action, ActionKind, Screen, UiElement
from vlm_agent.errors import RecipeError
from vlm_agent.models.build import Vocabulary, build_tokenizer, configuration_of
from vlm_agent.models.family import context_of, processor_of
from vlm_agent.recipe.run import Recipe
from vlm_agent.sentences.steps import StepSentences
from vlm_agent.sentences.thoughts import LineThoughts, lines
from vlm_agent.sentences.thoughts.plans import NO_PLANS
from vlm_agent.sentences.trajectory import TrajectorySentences, line_of
from vlm_agent.sentences.windows import past_of
from vlm_agent.texts.actions import in_words_by_name
from vlm_agent.training.data.count_cache import CountCache
from vlm_agent.training.data.html import html_lengths
from vlm_agent.training.data.references import reference_lines, with_references
from vlm_agent.training.data.stream import chosen_episodes
from vlm_agent.training.data.text_lengths import TextLengths, text_lengths
from vlm_agent.training.data.thoughts import (
    PlanTokens,
    count_plans,
    count_segments,
    count_texts,
    plan_lines,
    sentence_texts,
)
from vlm_agent.training.data.vocabulary import vocabulary_of


@dataclass(frozen=True)
class TokenCounts:
    """Token counts of E episodes with S steps in total.

    `episodes`: int64 (E,), their numbers in the data set, ascending. `goal`: int64 (E,), tokens before the first step.
    `lengths`: int64 (E,), steps per episode. `step`: int64 (S,), all tokens of a step. `screen`: int64 (S,), its visual
    tokens, or those of its HTML. `action`: int64 (S,), its supervised tokens, those of learned thoughts included: 0 for
    an action that is not writable (`TrajectorySentences`). `is_writable`: bool (S,). `thoughts`: int64 (S,), tokens of
    thoughts. `words`, `shown`: int64 (S,), tokens of an earlier step in words, and of one with its screen; None without
    `data.past_screens`. `plans`: int64 (S,), tokens of learned plans; None without `data.plan`. With a language that
    names swipe targets, a swipe that is not in words counts as if it named its target.
    """

    episodes: np.ndarray
    goal: np.ndarray
    lengths: np.ndarray
    step: np.ndarray
    screen: np.ndarray
    action: np.ndarray
    is_writable: np.ndarray
    thoughts: np.ndarray
    words: np.ndarray | None = None
    shown: np.ndarray | None = None
    plans: np.ndarray | None = None

    @property
    def whole(self) -> np.ndarray:
        """int64 (E,): `len(sentences.build(episode, with_swipe_targets=True))` of each episode; an upper bound with a
        language that names swipe targets."""
        episode = np.repeat(np.arange(len(self.lengths)), self.lengths)
        return self.goal + np.bincount(episode, self.step, minlength=len(self.lengths)).astype(np.int64)

    def rows_of(self, episodes: np.ndarray) -> np.ndarray:
        """int64: the indices in `goal` and `lengths` of episodes by their number in the data set."""
        return np.searchsorted(self.episodes, episodes)

    def steps_of(self, row: int) -> np.ndarray:
        """int64 (steps of the episode,): all tokens of each step."""
        return self.step[self._offsets[row] : self._offsets[row + 1]]

    def with_plans(self, plans: PlanTokens) -> "TokenCounts":
        """With the lines of plans at the step that is answered."""
        step = self.step + plans.current + plans.both
        action = np.where(self.is_writable, self.action + plans.learned, 0)
        return replace(self, step=step, action=action, plans=plans.learned)

    def past_of(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """int64 (steps of the episode,) twice: `shown` and `words`."""
        if self.words is None or self.shown is None:
            raise ValueError("these sentences are whole trajectories")
        of_episode = slice(self._offsets[row], self._offsets[row + 1])
        return self.shown[of_episode], self.words[of_episode]

    def writable_steps_of(self, row: int) -> np.ndarray:
        """bool (steps of the episode,)"""
        return self.is_writable[self._offsets[row] : self._offsets[row + 1]]

    def unwritable_steps(self) -> list[tuple[int, int]]:
        """(number of the episode in the data set, step) of each action that is not writable."""
        steps = np.flatnonzero(~self.is_writable)
        rows = np.searchsorted(self._offsets, steps, side="right") - 1
        return list(zip(self.episodes[rows].tolist(), (steps - self._offsets[rows]).tolist(), strict=True))

    @cached_property
    def _offsets(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.lengths)])


def columns_for(
    dataset: ShardDataset,
    sentences: TrajectorySentences | StepSentences,
    columns: Columns | None = None,
    episodes: Sequence[int] | None = None,
    control: str | None = None,
) -> Columns:
    """The columns that `count_tokens` needs, of every episode or of `episodes` (numbers in ascending order).

    `columns` are those that have been read already. `control`: `data.control`. Raises RecipeError for an episode
    without a text that `data.coat` needs.
    """
    columns = read_columns(dataset, episodes) if columns is None else columns
    if sentences.language.names_touched_elements:
        columns = replace(columns, touched=touched_names(dataset, episodes))
    elif sentences.language.numbers_elements:
        columns = replace(columns, touched=touched_numbers(dataset, episodes))
        if isinstance(sentences, TrajectorySentences) and sentences.past is not None:
            columns = replace(columns, in_words=_lines_by_name(columns, touched_names(dataset, episodes)))
    if sentences.thoughts.parts.is_on:
        columns = replace(columns, coat=sentence_texts(dataset, episodes, columns, sentences.thoughts.parts, control))
    if isinstance(sentences, TrajectorySentences) and sentences.as_html:
        columns = replace(columns, elements=listed_elements(dataset, episodes))
    plans = sentences.thoughts.plans if isinstance(sentences, TrajectorySentences) else NO_PLANS
    if plans.parts.is_on:
        columns = replace(columns, plan=plan_lines(dataset, episodes, columns, plans, control))
    if isinstance(sentences, TrajectorySentences) and sentences.references.digest:
        columns = replace(columns, references=reference_lines(dataset, episodes, columns, sentences))
    return columns


def count_tokens(
    columns: Columns,
    sentences: TrajectorySentences,
    episodes: Sequence[int] | None = None,
    cache: CountCache | None = None,
) -> TokenCounts:
    """Counts tokens from the columns that `columns_for` reads. `episodes`: the numbers of the episodes in the data set,
    if the columns are not of all of them."""
    language = sentences.language
    if (language.names_touched_elements or language.numbers_elements) and columns.touched is None:
        raise ValueError("a language that names or numbers touched elements needs the columns of `columns_for`")
    texts = DifferentTexts.of(columns, sentences)
    if cache is None:
        lengths = texts.measure(range(len(texts)))
    else:
        lengths = cache.lengths(sentences, texts.digest(), len(texts), texts.measure)
    goal, action, is_writable = texts.spread(lengths)
    if columns.references is not None:
        read = count_segments(columns.references.ravel(), str, sentences, cache)
        goal += read.reshape(columns.references.shape).sum(1)
    screen = _screen_tokens(columns, sentences, cache)
    coat = count_texts(columns, sentences, lines.segment, cache)
    action += coat.learned
    step = screen + coat.read + action
    step += len(sentences.before_screen(is_first=False)) + len(sentences.marks(sentences.template.cue))
    first = np.cumsum(columns.lengths) - columns.lengths
    step[first] -= len(sentences.before_screen(is_first=False)) - len(sentences.before_screen(is_first=True))
    numbers = np.arange(len(columns.lengths)) if episodes is None else np.array(episodes, np.int64)
    plans = _plan_tokens(columns, sentences, cache)
    supervised = np.where(is_writable, action, 0)
    counts = TokenCounts(numbers, goal, columns.lengths, step, screen, supervised, is_writable, coat.learned)
    counts = counts if columns.plan is None else counts.with_plans(plans)
    if sentences.past is None:
        return counts
    in_words = _word_tokens(columns, sentences, cache)
    in_words = np.where(plans.words > 0, plans.words, in_words)
    return replace(counts, words=in_words, shown=step + plans.both)


def _plan_tokens(columns: Columns, sentences: TrajectorySentences, cache: CountCache | None) -> PlanTokens:
    if columns.plan is None and sentences.thoughts.plans.parts.is_on:
        raise ValueError("sentences with plans need the columns of `columns_for`")
    steps = int(columns.lengths.sum())
    return count_plans(columns.plan or {}, steps, lambda texts: count_segments(texts, str, sentences, cache))


def _word_tokens(columns: Columns, sentences: TrajectorySentences, cache: CountCache | None) -> np.ndarray:
    """int64 (S,): tokens of each step in words."""
    if columns.in_words is not None:
        return count_segments(columns.in_words, str, sentences, cache)
    actions = DifferentActions.of(columns, sentences.language)

    def measure(numbers: Sequence[int]) -> TextLengths:
        return text_lengths(sentences, [line_of(actions.text(number, in_history=True)) for number in numbers])

    if cache is None:
        return measure(range(len(actions))).tokens.astype(np.int64)[actions.action_of]
    content = hashlib.sha256(b"words" + actions.digest()).digest()
    return cache.lengths(sentences, content, len(actions), measure).tokens.astype(np.int64)[actions.action_of]


def _lines_by_name(columns: Columns, names: np.ndarray) -> np.ndarray:
    """str objects (S,): each action in words, by the name of what it touches, str objects (S,)."""
    named = (in_words_by_name(action_at(columns, step), name) for step, name in enumerate(names.tolist()))
    return np.array([*map(line_of, named)], object)


def recipe_sentences(recipe: Recipe) -> TrajectorySentences:
    """Sentences as training with the recipe builds them.

    A tokenizer from scratch is built from the recipe's shards, as in training. Raises CheckpointError if the tokenizer
    cannot be loaded, and RecipeError and DatasetError as training would.
    """
    tokenizer = build_tokenizer(recipe.model, _words(recipe))
    processor, language = processor_of(configuration_of(recipe.model, tokenizer)), recipe.action_language.build()
    sentences = processor.sentences(tokenizer, language, LineThoughts.of(recipe.data), past_of(recipe.data))
    if recipe.data.references is None:
        return sentences
    shards = _shards(recipe)
    return with_references(sentences, recipe.data.references, shards, chosen_episodes(shards, recipe.data))


def _shards(recipe: Recipe) -> ShardDataset:
    if recipe.data.shards is None:
        raise RecipeError("data.shards is missing; name a folder that vlm-agent convert wrote")
    return ShardDataset(Path(recipe.data.shards), split=recipe.data.split)


def _words(recipe: Recipe) -> Vocabulary:
    if recipe.model.word_tokenizer is None:
        return Vocabulary(recipe.action_language.build().vocabulary(), texts=())
    shards = _shards(recipe)
    return vocabulary_of(recipe, shards, chosen_episodes(shards, recipe.data))


def context_length(recipe: Recipe) -> int:
    """The context length of the recipe's language model; RecipeError if its configuration has none."""
    config: PretrainedConfig = configuration_of(recipe.model, build_tokenizer(recipe.model, _words(recipe)))
    positions = context_of(config)
    if positions is None:
        raise RecipeError("the language model's configuration names no context length; give one with --budget")
    return positions


def _screen_tokens(columns: Columns, sentences: TrajectorySentences, cache: CountCache | None) -> np.ndarray:
    """int64 (steps,)"""
    if sentences.as_html:
        if columns.elements is None:
            raise ValueError("screens as HTML need the columns of `columns_for`")
        return html_lengths(columns.elements, sentences, cache)
    sizes, which = np.unique(np.stack([columns.height, columns.width], axis=1), axis=0, return_inverse=True)
    return np.array([sentences.screens.tokens(*size) for size in sizes.tolist()], np.int64)[which.ravel()]


@dataclass(frozen=True)
class DifferentActions:
    """The different actions of S steps, each written when it is asked for.

    `names`: str objects (S,), the name that an action's text may contain, None for a language without names. `first`:
    int (A,), the first step with each different action. `action_of`: int (S,), which of these each step's action is.
    """

    columns: Columns
    language: ActionLanguage
    names: np.ndarray | None
    first: np.ndarray
    action_of: np.ndarray

    @classmethod
    def of(cls, columns: Columns, language: ActionLanguage) -> "DifferentActions":
        names = None if columns.touched is None else _names(columns, columns.touched, language.name_swipe_targets)
        _, first, action_of = np.unique(language.text_keys(columns, names), return_index=True, return_inverse=True)
        return cls(columns, language, names, first, action_of)

    def __len__(self) -> int:
        return len(self.first)

    def text(self, number: int, in_history: bool = False) -> str:
        """The text of the action with this number. `in_history`: a swipe does not name its target."""
        step = int(self.first[number])
        if self.language.numbers_elements:
            return self.language.encode(action_at(self.columns, step), _numbered(self.names, step))
        action, screen, target = _encode_arguments(self.columns, step, self.names)
        return self.language.encode(action, screen, None if in_history else target)

    def digest(self, goals: Sequence[str] = ()) -> bytes:
        """sha256 of everything that the texts are written from, and of `goals`."""
        columns, first = self.columns, self.first
        texts = [list(goals), columns.text.take(pa.array(first)).to_pylist()]
        texts += [] if self.names is None else [self.names[first].tolist()]
        digest = hashlib.sha256(json.dumps(texts).encode())
        for column in (columns.action_kind, columns.touch_yx, columns.lift_yx):
            digest.update(np.ascontiguousarray(column[first]).tobytes())
        return digest.digest()


@dataclass(frozen=True)
class DifferentTexts:
    """The different goals and actions of E episodes with S steps. Numbers count the goals first.

    `goals`: the texts. `goal_of`: int (E,), the number of each episode's goal.
    """

    sentences: TrajectorySentences
    goals: list[str]
    goal_of: np.ndarray
    actions: DifferentActions

    @classmethod
    def of(cls, columns: Columns, sentences: TrajectorySentences) -> "DifferentTexts":
        goals = pa.array(columns.goal, pa.string()).dictionary_encode()
        written = [sentences.goal_text(goal) for goal in goals.dictionary.to_pylist()]
        return cls(sentences, written, goals.indices.to_numpy(), DifferentActions.of(columns, sentences.language))

    def __len__(self) -> int:
        return len(self.goals) + len(self.actions)

    def measure(self, numbers: Sequence[int]) -> TextLengths:
        """The lengths of the texts with these numbers."""
        return text_lengths(self.sentences, list(map(self._text, numbers)))

    def _text(self, number: int) -> str:
        return self.goals[number] if number < len(self.goals) else self.actions.text(number - len(self.goals))

    def spread(self, lengths: TextLengths) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """int64 (E,), tokens before the first step; int64 (S,), tokens of an action and its end mark; bool (S,),
        whether the action is writable."""
        tokens, count, action_of = lengths.tokens.astype(np.int64), len(self.goals), self.actions.action_of
        of_goals = tokens[:count] + len(self.sentences.start_ids())
        return of_goals[self.goal_of], tokens[count:][action_of] + 1, lengths.is_writable[count:][action_of]

    def digest(self) -> bytes:
        """sha256 of everything that the texts are written from."""
        return self.actions.digest(self.goals)


def action_at(columns: Columns, step: int) -> Action:
    kind = ActionKind(columns.action_kind[step])
    touch_yx, lift_yx = columns.touch_yx[step].tolist(), columns.lift_yx[step].tolist()
    return Action(kind, (touch_yx[0], touch_yx[1]), (lift_yx[0], lift_yx[1]), columns.text[step].as_py())


def _names(columns: Columns, touched: np.ndarray, name_swipe_targets: bool) -> np.ndarray:
    """str objects (steps,): the name that the text of each action may contain, "" if none.

    A swipe has the name of the tap that its run of swipes ends with, whether or not the sentence names it: so a count
    is never too low.
    """
    touches = columns.steps_that("tap") | columns.steps_that("long_press")
    names = np.where(touches, touched, "")
    if name_swipe_targets:
        is_last = np.zeros(len(names), bool)
        is_last[np.cumsum(columns.lengths) - 1] = True
        for step in np.flatnonzero(columns.steps_that("swipe") & ~is_last)[::-1]:
            names[step] = names[step + 1]
    return names


def _encode_arguments(
    columns: Columns, step: int, names: np.ndarray | None
) -> tuple[Action, Screen | None, str | None]:
    """The arguments of `ActionLanguage.encode`: a screen shows what is touched and nothing else."""
    action = action_at(columns, step)
    element = UiElement((0.0, 0.0, 1.0, 1.0), "" if names is None else names[step])
    if action.is_swipe:
        return action, None, spoken_name(element)
    return action, Screen(None, (element,)) if element.text else None, None


def _numbered(numbers: np.ndarray | None, step: int) -> Screen | None:
    """A screen on which the element nearest to any point has the step's number; None without a number."""
    if numbers is None or not numbers[step]:
        return None
    beside, everywhere = UiElement((2.0, 2.0, 0.0, 0.0)), UiElement((0.0, 0.0, 1.0, 1.0))
    return Screen(None, (*[beside] * int(numbers[step]), everywhere))
