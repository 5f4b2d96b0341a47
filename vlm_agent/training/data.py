"""The stream of rows that a run reads: numbered, deterministic, the same whatever reads it.

A row is what one forward pass takes: sentences laid end to end. Which sentences are in row number k depends on the
recipe's seed and the data alone, not on ranks, workers, or where a run was resumed; so the state of the stream is k.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from torch.utils.data import Dataset

from vlm_agent.datasets.drawn_screens import draw_errand, draw_hint, draw_play, draw_screen
from vlm_agent.datasets.mixture import in_mixture
from vlm_agent.datasets.shards import ShardDataset
from vlm_agent.episodes import Step
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.elements import ElementSentences, label_elements
from vlm_agent.sentences.lessons import Lessons
from vlm_agent.sentences.packing import fill_rows
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.sentences.windows import Window
from vlm_agent.training.recipe import DataRecipe, RecipeError

_EMPTY_CELLS_NAMED = 0.1
_ERRANDS, _HINTS, _PLAY = 0.75, 0.6, 0.85
"""Of drawn lessons that ask first, once play has begun, _PLAY are play; of the others, once errands have, _ERRANDS are
walks; of those, once play has begun, _HINTS are told in part."""

_PACKED_TOGETHER = 512
"""Sentences among which those that fill a row are found: enough to waste little, few enough to stay well mixed."""


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


@dataclass(frozen=True)
class Item:
    """What one sentence is made of: an episode, and the window of it that is read (None: all that there is)."""

    episode: int
    window: Window | None = None


@dataclass(frozen=True)
class RowSize:
    """How many sentences make a row: `sentences` of them, or as many as fit into `tokens`."""

    sentences: int | None = None
    tokens: int | None = None


class RowOrder:
    """Which items make which row. Each pass over the items is shuffled by the seed.

    With a budget of tokens, rows are filled from stretches of `_PACKED_TOGETHER` items, and shuffled again.
    """

    def __init__(self, items: Sequence[Item], size: RowSize, seed: int):
        if size.tokens is not None and any(item.window is None for item in items):
            raise ValueError("rows of a number of tokens need to know each sentence's length")
        self.items, self.size, self.seed = items, size, seed
        self._rows_of = lru_cache(maxsize=2)(self._shuffled)
        self._begins = [0]

    def __getstate__(self) -> dict:
        return {key: value for key, value in self.__dict__.items() if key != "_rows_of"}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._rows_of = lru_cache(maxsize=2)(self._shuffled)

    def row(self, number: int) -> list[tuple[int, int]]:
        """(item, how many sentences of the stream came before it), for each sentence of row `number`."""
        turn = self._turn_of(number)
        rows = self._rows_of(turn)
        at = number - self._begins[turn]
        first = turn * len(self.items) + sum(len(row) for row in rows[:at])
        return [(item, first + place) for place, item in enumerate(rows[at])]

    def rows_in(self, passes: float) -> int:
        """The rows of so many passes over the items."""
        whole = int(passes)
        rows = sum(len(self._rows_of(turn)) for turn in range(whole))
        return rows + (math.ceil((passes - whole) * len(self._rows_of(whole))) if passes > whole else 0)

    def _turn_of(self, number: int) -> int:
        while self._begins[-1] <= number:
            self._begins.append(self._begins[-1] + len(self._rows_of(len(self._begins) - 1)))
        return next(turn for turn in reversed(range(len(self._begins))) if self._begins[turn] <= number)

    def _shuffled(self, turn: int) -> list[list[int]]:
        rng = random.Random(f"{self.seed}/turn/{turn}")  # noqa: S311 (no secret)
        order = rng.sample(range(len(self.items)), len(self.items))
        if self.size.sentences is not None:
            count = self.size.sentences
            return [order[at : at + count] for at in range(0, len(order), count)]
        rows = []
        for start in range(0, len(order), _PACKED_TOGETHER):
            near = order[start : start + _PACKED_TOGETHER]
            filled = fill_rows([self.items[item].window.tokens for item in near], self.size.tokens)
            rows += [[near[place] for place in row] for row in filled]
        return rng.sample(rows, len(rows))


class RowStream(Dataset):
    """Row number k of a run, for k in 0 … `total`-1, as the model takes it: `rows` makes it of the sentences."""

    def __init__(
        self, order: RowOrder, total: int, sentence: Callable[[Item, random.Random], Sentence], rows: Callable
    ):
        self.order, self.total, self.sentence, self.rows = order, total, sentence, rows

    def __len__(self) -> int:
        return self.total

    def __getitem__(self, number: int) -> dict:
        return self.rows(self.sentences(number))

    def sentences(self, number: int) -> list[Sentence]:
        return [
            # A generator that belongs to this sentence alone.
            self.sentence(self.order.items[item], random.Random(f"{self.order.seed}/{place}"))  # noqa: S311 (no secret)
            for item, place in self.order.row(number)
        ]


@dataclass(frozen=True)
class Trajectories:
    """Sentences of whole episodes, or windows of them. `grid`: that of element labels, where the model wants them."""

    shards: ShardDataset
    sentences: TrajectorySentences
    grid: tuple[int, int] | None = None

    def __call__(self, item: Item, rng: random.Random) -> Sentence:
        window = item.window
        if window is None:
            episode, learned, first = self.shards[item.episode], 0, 0
        else:
            episode = self.shards.steps(item.episode, window.first, window.last)
            learned, first = window.learned - window.first, window.first
        sentence = self.sentences.build(episode, learned=learned, told=True)
        sentence.about = f"{episode.id} steps {first + learned}-{first + len(episode) - 1}"
        if self.grid:
            sentence.element_labels = [
                label_elements(step, self.grid, self.sentences, _EMPTY_CELLS_NAMED, rng) for step in episode.steps
            ]
        return sentence


@dataclass(frozen=True)
class Elements:
    """Sentences of one screen of an episode, its elements named and placed."""

    shards: ShardDataset
    sentences: ElementSentences
    grid: tuple[int, int] | None = None

    def __call__(self, item: Item, rng: random.Random) -> Sentence:
        number = rng.randrange(len(self.shards.screen_sizes[item.episode]))
        step = self.shards.step(item.episode, number)
        sentence = self.sentences.build(step, rng)
        sentence.about = f"{self.shards.ids[item.episode]} screen {number}"
        if self.grid:
            labels = label_elements(step, self.grid, self.sentences.trajectory, _EMPTY_CELLS_NAMED, rng)
            sentence.element_labels = [labels]
        return sentence


HELD_OUT = "held out"
"""The seed of lessons that no run learns: those of runs are numbers."""


class EndlessOrder:
    """Row k holds the sentences k · `count` … of a stream that never comes round again."""

    items = range(2**62)  # an item is its own number

    def __init__(self, count: int, seed: int | str):
        self.count, self.seed = count, seed

    def row(self, number: int) -> list[tuple[int, int]]:
        return [(at, at) for at in range(number * self.count, (number + 1) * self.count)]


@dataclass(frozen=True)
class DrawnLessons:
    """Lessons over screens drawn for them. Those before number `dense` read whole screens; after them every second one
    asks first. From number `errands` on most of those are walks told step by step, from number `play` on walks that
    come upon something, told in part; None: never."""

    lessons: Lessons
    dense: int
    grid: tuple[int, int] | None = None
    errands: int | None = None
    play: int | None = None

    def hardest(self) -> "DrawnLessons":
        """The same from where nothing is left out."""
        errands, play = (None if begin is None else 0 for begin in (self.errands, self.play))
        return replace(self, dense=0, errands=errands, play=play)

    def __call__(self, number: int, rng: random.Random) -> Sentence:
        sentence, steps = self._lesson(number, rng)
        sentence.about = f"lesson {number}"
        if self.grid:
            sentence.element_labels = [
                label_elements(step, self.grid, self.lessons.trajectory, _EMPTY_CELLS_NAMED, rng) for step in steps
            ]
        return sentence

    def _lesson(self, number: int, rng: random.Random) -> tuple[Sentence, Sequence[Step]]:
        if number < self.dense or number % 2:
            screen = draw_screen(rng)
            return self.lessons.dense(screen, rng), [screen.step]
        playing, walking = (begin is not None and number >= begin for begin in (self.play, self.errands))
        if playing and rng.random() < _PLAY:
            walk = draw_play(rng)
        elif walking and rng.random() < _ERRANDS:
            walk = draw_hint(rng) if playing and rng.random() < _HINTS else draw_errand(rng)
        else:
            sentence, screens = self.lessons.asked_first(lambda: draw_screen(rng), rng)
            return sentence, [screen.step for screen in screens]
        return self.lessons.trajectory.build(walk, told=True), walk.steps


def only_row(rows: list[dict]) -> dict:
    """A loader's batch of one row."""
    (row,) = rows
    return row
