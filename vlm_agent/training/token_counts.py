"""How many tokens trajectories take under a recipe, from columns alone: no pixel and no model weight is read.

A trajectory's tokens are those of its goal and, a step, of the screen, the cue and the action; so it is enough to
tokenise each different goal and each different action once, and to measure each different size of screen. Actions that
the binned language writes alike are found by arithmetic on arrays; of millions of steps only thousands are left to be
written (more in the named one: a tap on each name and place).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from transformers import PretrainedConfig

from vlm_agent.action_languages.binned import PHRASES
from vlm_agent.action_languages.named import NamedLanguage, spoken_name
from vlm_agent.datasets.columns import DIRECTIONS, Columns, read_columns
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.datasets.touched import touched_names
from vlm_agent.episodes import ACTION_NAMES, Action, ActionKind, Step, UiElement
from vlm_agent.models.build import Vocabulary, build_tokenizer, configuration_of
from vlm_agent.models.reading import reading_of
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.training.data import chosen_episodes
from vlm_agent.training.drawn_plan import vocabulary_of_drawn
from vlm_agent.training.recipe import Recipe, RecipeError
from vlm_agent.training.vocabulary import vocabulary_of


@dataclass(frozen=True)
class TokenCounts:
    """Of E episodes with together S steps: `goal` int64 (E,), tokens before the first step; `lengths` int64 (E,), steps
    of each; of each step, int64 (S,), `step` all its tokens, `screen` the visual ones among them and `action` those
    that are learned. Where the language is `sought`, a swipe counts as if it said what it is to bring.
    """

    goal: np.ndarray
    lengths: np.ndarray
    step: np.ndarray
    screen: np.ndarray
    action: np.ndarray

    @property
    def whole(self) -> np.ndarray:
        """int64 (E,): of each episode, `len(sentences.build(episode, told=True))`; of a language that is `sought`, no
        less than that."""
        episode = np.repeat(np.arange(len(self.lengths)), self.lengths)
        return self.goal + np.bincount(episode, self.step, minlength=len(self.lengths)).astype(np.int64)

    def steps_of(self, episode: int) -> np.ndarray:
        """int64 (steps of it,): the tokens of each of its steps."""
        return self.step[self._offsets[episode] : self._offsets[episode + 1]]

    @cached_property
    def _offsets(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.lengths)])


def columns_for(dataset: ShardDataset, sentences: TrajectorySentences, columns: Columns | None = None) -> Columns:
    """What `count_tokens` needs to know of a data set, of which `columns` may have been read already."""
    columns = read_columns(dataset) if columns is None else columns
    named = isinstance(sentences.language, NamedLanguage)
    return replace(columns, touched=touched_names(dataset)) if named else columns


def count_tokens(columns: Columns, sentences: TrajectorySentences) -> TokenCounts:
    """`columns` as `columns_for` reads them.

    Raises ValueError where the tokenizer cannot say an action, as building that sentence would.
    """
    if isinstance(sentences.language, NamedLanguage) and columns.touched is None:
        raise ValueError("a language that names what it touches needs columns as `columns_for` reads them")
    goals = pa.array(columns.goal, pa.string()).dictionary_encode()
    of_goals = np.array([len(sentences.goal_ids(goal)) for goal in goals.dictionary.to_pylist()], np.int64)
    screen, action = _screen_tokens(columns, sentences), _action_tokens(columns, sentences)
    step = screen + action + len(sentences.before_screen(is_first=False)) + len(sentences.marks(sentences.frame.cue))
    first = np.cumsum(columns.lengths) - columns.lengths
    step[first] -= len(sentences.before_screen(is_first=False)) - len(sentences.before_screen(is_first=True))
    return TokenCounts(of_goals[goals.indices.to_numpy()], columns.lengths, step, screen, action)


def recipe_sentences(recipe: Recipe) -> TrajectorySentences:
    """Sentences as training with the recipe builds them.

    A tokenizer from scratch is made from the recipe's shards, as training makes it. Raises CheckpointError where the
    tokenizer cannot be had, RecipeError and DatasetError as training would.
    """
    tokenizer = build_tokenizer(recipe.model, _words(recipe))
    return reading_of(configuration_of(recipe.model, tokenizer)).sentences(tokenizer, recipe.action_language.build())


def _words(recipe: Recipe) -> Vocabulary:
    if recipe.model.word_tokenizer is None:
        return Vocabulary(PHRASES, recipe.action_language.bins, texts=())
    if recipe.data.drawn is not None:
        return vocabulary_of_drawn(recipe.action_language.bins)
    shards = ShardDataset(Path(recipe.data.shards), split=recipe.data.split)
    return vocabulary_of(recipe, shards, chosen_episodes(shards, recipe.data))


def context_length(recipe: Recipe) -> int:
    """The positions that the recipe's language model was made for; RecipeError where its configuration does not say."""
    config: PretrainedConfig = configuration_of(recipe.model, build_tokenizer(recipe.model, _words(recipe)))
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    if positions is None:
        raise RecipeError("the language model's configuration names no context length; give one with --budget")
    return positions


def _screen_tokens(columns: Columns, sentences: TrajectorySentences) -> np.ndarray:
    """int64 (steps,)"""
    sizes, which = np.unique(np.stack([columns.height, columns.width], axis=1), axis=0, return_inverse=True)
    return np.array([sentences.screens.tokens(*size) for size in sizes.tolist()], np.int64)[which.ravel()]


def _action_tokens(columns: Columns, sentences: TrajectorySentences) -> np.ndarray:
    """int64 (steps,): the tokens of each action and its end mark."""
    alike, said = _written_alike(columns, sentences.language.bins), None
    if columns.touched is not None:
        said = _said(columns, sentences.language.sought)
        names = pa.array(said, pa.string()).dictionary_encode().indices.to_numpy()
        alike = _rank(alike) * (names.max(initial=0) + 1) + names
    _, first, which = np.unique(alike, return_index=True, return_inverse=True)
    counts = [len(sentences.action_ids(*_written(columns, step, said))) for step in first.tolist()]
    return np.array(counts, np.int64)[which]


def _said(columns: Columns, sought: bool) -> np.ndarray:
    """str (steps,): the name that each action may say, "" where it has none. A swipe has that of the tap that its
    run of swipes ends with, whether or not it says it, so that its tokens are never too few."""
    taps, swipes = columns.steps_that("tap"), columns.steps_that("swipe")
    said = np.where(taps, columns.touched, "")
    if sought:
        last = np.zeros(len(said), bool)
        last[np.cumsum(columns.lengths) - 1] = True
        for step in np.flatnonzero(swipes & ~last)[::-1]:
            said[step] = said[step + 1]
    return said


def _written_alike(columns: Columns, bins: int) -> np.ndarray:
    """int64 (steps,): one number for all steps that `BinnedLanguage` writes alike.

    A tap is written from its touch's bins; a swipe from the bins of both ends and its direction; typing from its text.
    """
    touch, lift = (
        np.minimum((points.astype(np.float64) * bins).astype(np.int64), bins - 1)
        for points in (columns.touch_yx, columns.lift_yx)
    )
    swipes, taps, typed = (columns.steps_that(action) for action in ("swipe", "tap", "type"))
    start = np.where(swipes | taps, touch[:, 0] * bins + touch[:, 1], 0)
    texts = columns.text.dictionary_encode().indices.to_numpy()
    end_or_text = np.where(swipes, lift[:, 0] * bins + lift[:, 1], np.where(typed, texts, 0))
    kind = columns.action * len(DIRECTIONS) + np.where(swipes, columns.direction, 0)
    return (_rank(start) * len(start) + _rank(end_or_text)) * len(ACTION_NAMES) * len(DIRECTIONS) + kind


def _rank(values: np.ndarray) -> np.ndarray:
    """Small numbers that are equal where the values are: products of them stay within int64, whatever `bins` is."""
    return np.unique(values, return_inverse=True)[1]


def _written(columns: Columns, number: int, said: np.ndarray | None) -> tuple[Action, Step | None, str | None]:
    """The action and, where names are known, a screen that shows what a tap touches and nothing else, or what a swipe
    is to bring."""
    action, name = _action(columns, number), "" if said is None else said[number]
    if not action.is_tap:
        return action, None, spoken_name(_named(name))
    return action, Step(None, action, (_named(name),)) if name else None, None


def _named(name: str) -> UiElement:
    return UiElement((0.0, 0.0, 1.0, 1.0), name)


def _action(columns: Columns, step: int) -> Action:
    kind = ActionKind(columns.action_kind[step])
    points = (tuple(values[step].tolist()) for values in (columns.touch_yx, columns.lift_yx))
    return Action(kind, *points, columns.text[step].as_py())
