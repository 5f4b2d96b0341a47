"""The protocol of kinds of sentences, and the size of a pass over them."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import PretrainedConfig

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode, Step
from vlm_agent.errors import RecipeError
from vlm_agent.models.cost import Workload
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.notes import NOTES
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.notes import as_line
from vlm_agent.sentences.trajectory import unwritable_line
from vlm_agent.training.data.data_module import DataModule, Note
from vlm_agent.training.data.stream import Item, RowSize

EMPTY_CELLS_NAMED = 0.1
"""The probability of a label for a blank cell of a screen (`label_elements`)."""

LISTED = 20
"""Steps that are not learned are counted, and so many of them listed."""

Writer = Callable[[Item, random.Random], Sentence]
"""Builds the sentence of an item. Pickles, for the workers of data loaders. The generator is the sentence's own."""


@dataclass(frozen=True)
class PassCounts:
    """The size of one pass over a recipe's episodes. `load`: the workload of the whole pass. `longest`: tokens of its
    longest sentence. `actions`: supervised actions."""

    episodes: int
    sentences: int
    longest: int
    actions: int
    load: Workload

    def rows(self) -> dict[str, str]:
        """The rows of a dry run's table that only this kind of sentences has."""
        return {}

    def largest_row(self, size: RowSize) -> Workload:
        """The largest possible row, with the average density of actions and screens."""
        at_most = (size.sentences or 1) * self.longest if size.tokens is None else max(size.tokens, self.longest)
        share = min(at_most, self.load.tokens) / self.load.tokens
        return self.load * share


@dataclass(frozen=True)
class SentenceKind(ABC):
    """One kind of sentences in a run on shards. `shards` and `episodes` (indices, ascending) are those of the run."""

    run: DataModule
    shards: ShardDataset
    episodes: Sequence[int]

    @classmethod
    def phrases_of(cls, data: DataRecipe) -> tuple[str, ...]:
        """Fixed texts for a tokenizer from scratch, beside those of the action language."""
        return ()

    @abstractmethod
    def items(self, shards: ShardDataset, episodes: Sequence[int]) -> Sequence[Item]:
        """The items of episodes of the run or of its validation. Raises RecipeError for an episode that the recipe does
        not allow, and for episodes without an item."""

    @abstractmethod
    def writer(self, shards: ShardDataset) -> Writer: ...

    def notes(self) -> list[Note]:
        """What a user should know about the data before the run starts."""
        return []

    def digest(self) -> bytes:
        """The digest of data beside the shards that decides the sentences; empty without any."""
        return b""

    def complete(self, config: PretrainedConfig) -> None:
        """Adds to the model's configuration what is known from the data, in place."""
        return

    def record(self, run: Path) -> None:
        """Writes into the run folder what agents need of the data."""
        return

    def sentences_per_row(self, batch_size: int) -> int:
        """For rows that are not packed to a number of tokens."""
        return batch_size

    def count_pass(self, items: Sequence[Item]) -> PassCounts:
        """The counts of the run's items, without pixels. Raises RecipeError if the sentences are unknown before the
        run."""
        raise RecipeError(
            "a dry run needs data.shards and sentences of known length, such as data.sentences: trajectory; those of "
            f"{self.run.recipe.data.sentences} are known only during the run"
        )


def unwritable(shards: ShardDataset, steps: np.ndarray) -> list[Note]:
    """The note on actions that are not writable (`TrajectorySentences`), if there are any: they stay in the history and
    are not supervised. `steps`: rows of `Counts.steps`."""
    found = steps[steps["is_writable"] == 0]
    if not len(found):
        return []
    head = f"{len(found):,} actions that this tokenizer cannot write are read, and not learned:"
    return [Note.listing("unwritable_actions", head, len(found), listed(shards, found))]


def listed(shards: ShardDataset, steps: np.ndarray) -> list[str]:
    """A line for each of the first steps, whose actions are not learned. `steps`: rows of `Counts.steps`."""
    places = zip(steps["episode"][:LISTED].tolist(), steps["number"][:LISTED].tolist(), strict=True)
    return [
        unwritable_line(shards.ids[episode], step, shards.without_pixels(episode).steps[step].action)
        for episode, step in places
    ]


def missing_notes(episode: Episode, data: DataRecipe) -> list[int]:
    """For each step the notes that it lacks: bit k is that of the k-th note in `data.notes`; 0 where
    `data.missing_notes` allows it."""
    if data.missing_notes == "empty":
        return [0] * len(episode)
    last = len(episode) - 1
    return [
        sum(_lacks(step, number, last, name, data) << bit for bit, name in enumerate(data.notes))
        for number, step in enumerate(episode.steps)
    ]


def _lacks(step: Step, number: int, last: int, name: str, data: DataRecipe) -> bool:
    if NOTES[name].of_elements:
        return False
    if name == "result" and number == last:  # no step reads the result of the last action
        return False
    if data.notes[name].use == "first" and number and data.control != "no_history":
        return False
    return not as_line(name, step.notes.get(name, ""))


def check_notes(steps: np.ndarray, shards: ShardDataset, data: DataRecipe) -> None:
    """Raises RecipeError that names the first step without a note. `steps`: rows of `Counts.steps`, whose `missing` is
    from `missing_notes`."""
    for bit, (name, note) in enumerate(data.notes.items()):
        lacking = steps[steps["missing"] >> bit & 1 > 0]
        if len(lacking):
            raise RecipeError(
                f"episode {shards.ids[int(lacking['episode'][0])]} step {int(lacking['number'][0])} has no note "
                f"{name!r}, which data.notes.{name}: {note.use} needs ({len(lacking):,} of {len(steps):,} steps in "
                f"{shards.directory} lack it); choose shards of a source with notes, such as AitZ, write them with "
                f"`vlm-agent annotate` or `vlm-agent simulate --thoughts`, remove data.notes.{name}, or set "
                "data.missing_notes to empty"
            )
