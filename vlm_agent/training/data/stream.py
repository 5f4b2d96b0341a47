"""The stream of training rows: a map-style dataset, deterministic, independent of who reads it.

A row is the input of one forward pass: sentences packed end to end. The sentences of row number k depend on the
recipe's seed and the data alone, not on ranks, workers, or where a run was resumed; so the state of the stream is k.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from torch.utils.data import Dataset

from vlm_agent.datasets.selection import check_subsets, in_mixture
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import RecipeError
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.packing import fill_rows
from vlm_agent.sentences.windows import Window

if TYPE_CHECKING:
    from vlm_agent.training.engine import Engine

_PACKING_BUFFER = 512
"""Shuffled sentences that are packed into rows, or grouped by length: more waste fewer tokens, fewer keep rows better
mixed."""


def chosen_episodes(shards: ShardDataset, recipe: DataRecipe) -> list[int]:
    """Indices of the episodes that the recipe's mixture and limit keep, the limit spread over all of them."""
    check_subsets(recipe.mixture, shards.subsets, "data.mixture")
    indices = [
        index
        for index, (episode_id, subset) in enumerate(zip(shards.ids, shards.subsets, strict=True))
        if in_mixture(episode_id, subset, recipe.mixture)
    ]
    if not indices:
        kept = " that data.mixture keeps" if recipe.mixture else ""
        raise RecipeError(f"{shards.directory} has no episode in split {recipe.split}{kept}")
    count = len(indices) if recipe.limit is None else min(recipe.limit, len(indices))
    return [indices[number * len(indices) // count] for number in range(count)]


@dataclass(frozen=True)
class Item:
    """The source of one sentence: an episode, and a window of it (None: the whole episode)."""

    episode: int
    window: Window | None = None


@dataclass(frozen=True, eq=False)
class Windows(Sequence[Item]):
    """Items with windows, built on access: millions of objects would take gigabytes in every process.

    `rows`: int64 (N, 5), the episode of each and the fields of its `Window`.
    """

    rows: np.ndarray

    @classmethod
    def of(cls, columns: Sequence[np.ndarray], episodes: Sequence[int]) -> "Windows":
        """`columns`: those of `rows`, int64 (N,) each, sorted by `episodes`; items of an episode keep their order."""
        places = {episode: place for place, episode in enumerate(episodes)}
        order = np.argsort([places[episode] for episode in columns[0].tolist()], kind="stable")
        return cls(np.stack(columns, axis=1)[order])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Item:  # type: ignore[override]  # no slices
        episode, *bounds = self.rows[number].tolist()
        return Item(episode, Window(*bounds))


@dataclass(frozen=True)
class RowSize:
    """The size of a row: `sentences` per row, or as many sentences as fit into `tokens`.

    `by_length`: rows of `sentences` have sentences of similar length, so that they are padded less.
    """

    sentences: int | None = None
    tokens: int | None = None
    by_length: bool = False


class Order(Protocol):
    """Which sentences are in which row."""

    @property
    def seed(self) -> int | str: ...

    @property
    def items(self) -> Sequence[Any]: ...

    def row(self, number: int) -> list[tuple[int, int]]:
        """(item, its number in the stream of sentences) for each sentence of row `number`."""


class RowOrder:
    """The items of each row. Each pass over the items is shuffled with the seed.

    With a budget of tokens, rows are packed from `_PACKING_BUFFER` items at a time, and shuffled again; with
    `by_length`, so many items at a time are sorted by length and divided into rows.
    """

    def __init__(self, items: Sequence[Item], size: RowSize, seed: int) -> None:
        if len(items) and (size.tokens is not None or size.by_length):
            _tokens(items[0])
        self.items, self.size, self.seed = items, size, seed
        self._first_rows = [0]
        self.__setstate__({})

    def __getstate__(self) -> dict:
        return {key: value for key, value in self.__dict__.items() if key not in ("_rows_of", "_starts_of")}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._rows_of = lru_cache(maxsize=2)(self._shuffled)
        self._starts_of = lru_cache(maxsize=2)(lambda turn: [*accumulate(map(len, self._rows_of(turn)), initial=0)])

    def row(self, number: int) -> list[tuple[int, int]]:
        """(item, its number in the stream of sentences) for each sentence of row `number`."""
        turn = self._turn_of(number)
        at = number - self._first_rows[turn]
        first = turn * len(self.items) + self._starts_of(turn)[at]
        return [(item, first + place) for place, item in enumerate(self._rows_of(turn)[at])]

    def rows_in(self, passes: float) -> int:
        """The number of rows of `passes` passes over the items."""
        whole = int(passes)
        rows = sum(len(self._rows_of(turn)) for turn in range(whole))
        return rows + (math.ceil(round((passes - whole) * len(self._rows_of(whole)), 6)) if passes > whole else 0)

    def _turn_of(self, number: int) -> int:
        while self._first_rows[-1] <= number:
            self._first_rows.append(self._first_rows[-1] + len(self._rows_of(len(self._first_rows) - 1)))
        return next(turn for turn in reversed(range(len(self._first_rows))) if self._first_rows[turn] <= number)

    def _shuffled(self, turn: int) -> list[list[int]]:
        rng = random.Random(f"{self.seed}/turn/{turn}")  # noqa: S311 (no secret)
        order = rng.sample(range(len(self.items)), len(self.items))
        if self.size.sentences is not None and not self.size.by_length:
            return _divided(order, self.size.sentences)
        rows = []
        for start in range(0, len(order), _PACKING_BUFFER):
            rows += self._rows_from(order[start : start + _PACKING_BUFFER])
        return rng.sample(rows, len(rows))

    def _rows_from(self, near: list[int]) -> list[list[int]]:
        lengths = [_tokens(self.items[item]) for item in near]
        if self.size.sentences is not None:
            ascending = sorted(range(len(near)), key=lengths.__getitem__)
            return _divided([near[place] for place in ascending], self.size.sentences)
        if self.size.tokens is None:
            raise ValueError("a row size needs sentences or tokens")
        return [[near[place] for place in row] for row in fill_rows(lengths, self.size.tokens)]


def _divided(items: list[int], count: int) -> list[list[int]]:
    return [items[at : at + count] for at in range(0, len(items), count)]


def _tokens(item: Item) -> int:
    if item.window is None:
        raise ValueError("rows of a number of tokens, or by length, need to know each sentence's length")
    return item.window.tokens


class Batches(Protocol):
    """The training rows of a run, by number."""

    def batches(self, numbers: range, engine: "Engine", workers: int) -> Iterator[dict]:
        """The rows of these numbers in their order, on the device of the engine, whose model may play them."""

    def figures(self) -> dict[str, float]:
        """Figures of the data for a log line."""


class RowStream(Dataset):
    """Rows 0 … `total`-1 of a run. `sentence(item, generator)` builds a sentence, `rows` collates several."""

    def __init__(
        self, order: Order, total: int, sentence: Callable[[Any, random.Random], Sentence], rows: Callable
    ) -> None:
        self.order, self.total, self.sentence, self.rows = order, total, sentence, rows

    def __len__(self) -> int:
        return self.total

    def __getitem__(self, number: int) -> dict:
        return self.rows(self.sentences(number))

    def sentences(self, number: int) -> list[Sentence]:
        return [
            # Each sentence has its own generator.
            self.sentence(self.order.items[item], random.Random(f"{self.order.seed}/{place}"))  # noqa: S311 (no secret)
            for item, place in self.order.row(number)
        ]

    def batches(self, numbers: range, engine: "Engine", workers: int) -> Iterator[dict]:
        from vlm_agent.training.engine import load  # it builds on this module

        return load(self, numbers, workers, engine.place.device)

    def figures(self) -> dict[str, float]:
        return {}
