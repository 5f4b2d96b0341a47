"""The texts that a sentence has at each step, by part of `CoatRecipe`."""

from collections.abc import Mapping, Sequence

import numpy as np

from vlm_agent.datasets.shards.columns import Columns, note_texts
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import RecipeError
from vlm_agent.recipe.data import CoatRecipe
from vlm_agent.sentences.thoughts import shuffled_results
from vlm_agent.texts.lines import one_line


def sentence_texts(
    dataset: ShardDataset, episodes: Sequence[int] | None, columns: Columns, parts: CoatRecipe, control: str | None
) -> dict[str, np.ndarray]:
    """str objects (S,) by part that is on. `result` is the text that a step reads: of the action before it, empty at
    the first step.

    `episodes`: numbers in ascending order; None: all. `control`: `data.control`. Raises RecipeError for a text that is
    missing, unless `parts.missing` is `empty`.
    """
    texts = note_texts(dataset, (*parts.read, *parts.learned), episodes)
    if parts.missing == "error":
        _check(texts, columns.lengths, dataset, episodes)
    if "result" in texts:
        texts["result"] = _read_results(texts["result"], columns, control)
    return texts


def _read_results(results: np.ndarray, columns: Columns, control: str | None) -> np.ndarray:
    """str objects (S,): what each step reads, from the result of each action."""
    read = np.full(len(results), "", object)
    if control == "no_history":
        return read
    first = 0
    for goal, length in zip(columns.goal.tolist(), columns.lengths.tolist(), strict=True):
        of_episode = results[first : first + length - 1].tolist()
        read[first + 1 : first + length] = (
            shuffled_results(of_episode, goal) if control == "shuffled_results" else of_episode
        )
        first += length
    return read


def _check(
    texts: Mapping[str, np.ndarray], lengths: np.ndarray, dataset: ShardDataset, episodes: Sequence[int] | None
) -> None:
    for part, of_steps in texts.items():
        missing = np.array([not one_line(text) for text in of_steps], bool)
        if part == "result":
            missing[np.cumsum(lengths) - 1] = False  # no step reads the result of the last action
        if missing.any():
            first, share = where_missing(missing, lengths, dataset, episodes)
            raise RecipeError(
                f"{first} has no note {part!r}, which data.coat.{part} needs ({share} lack it); choose shards of a "
                f"source with these texts, such as AitZ, set data.coat.{part} to false, or data.coat.missing to empty"
            )


def where_missing(
    missing: np.ndarray, lengths: np.ndarray, dataset: ShardDataset, episodes: Sequence[int] | None
) -> tuple[str, str]:
    """The first step without a text, and how many lack it, for an error.

    `missing`: bool (S,) with at least one True. `lengths`: int64 (E,), the steps of each episode. `episodes`: their
    numbers; None: all.
    """
    ends = np.cumsum(lengths)
    step = int(np.flatnonzero(missing)[0])
    row = int(np.searchsorted(ends, step, side="right"))
    name = dataset.ids[row if episodes is None else episodes[row]]
    share = f"{int(missing.sum()):,} of {len(missing):,} steps in {dataset.directory}"
    return f"episode {name} step {step - int(ends[row] - lengths[row])}", share
