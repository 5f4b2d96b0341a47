"""Exact lengths of the sentences of a run, counted once and kept beside the shards.

    SHARDS/.lengths/KEY.npz

A kind of sentences counts an episode without its pixels from the segments that training encodes. KEY is a digest of
everything that decides the counts: the shards, the tokenizer, the action language, `data` of the recipe, and the sizes
of screens. It does not cover the code, so some episodes of every file are counted again when it is read. Any file may
be removed at any time. Of several processes that start together, such as the ranks of a run, one counts and the others
wait for its file.
"""

import gc
import hashlib
import json
import logging
import os
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vlm_agent.datasets.shards.dataset import ShardDataset, manifest_content
from vlm_agent.episodes import Episode
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_write, file_lock

_LOG = logging.getLogger(__name__)
_VERSION = 1
_SAMPLE = 8
_PATIENCE_SECONDS = 1800.0
_LEAST_STEPS = 20_000
"""Fewer steps are counted at each start, without a file."""

Row = tuple[int, ...]


@dataclass(frozen=True)
class Counts:
    """Structured int64 arrays. `items` (N,): a row for each sentence, with the number of its `episode` in the data set.
    `steps` (S,): a row for each step, with `episode` and `number`. The other fields are those of a `Counter`."""

    items: np.ndarray
    steps: np.ndarray

    def of(self, episode: int) -> "Counts":
        """The rows of one episode."""
        return Counts(*(rows[rows["episode"] == episode] for rows in (self.items, self.steps)))


@dataclass(frozen=True)
class Counter:
    """`count`: from an episode without pixels to the rows of its sentences and those of its steps. `items`, `steps`:
    the names of the values in a row. `identity`: all that decides the rows beside the shards, as JSON values."""

    count: Callable[[Episode], tuple[list[Row], list[Row]]]
    items: tuple[str, ...]
    steps: tuple[str, ...]
    identity: Any

    @property
    def columns(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The fields of each array of `Counts`."""
        return ("items", ("episode", *self.items)), ("steps", ("episode", "number", *self.steps))

    def over(self, shards: ShardDataset, episodes: Sequence[int]) -> Counts:
        """Counts episodes without a file. `episodes`: their numbers, ascending."""
        items: list[Row] = []
        steps: list[Row] = []
        # Without this, the collections that so many new objects start scan all of PyTorch's too: 40 % of the time.
        gc.freeze()
        try:
            for number, episode in zip(episodes, shards.each_without_pixels(episodes), strict=True):
                new_items, new_steps = self.count(episode)
                items += [(number, *row) for row in new_items]
                steps += [(number, step, *row) for step, row in enumerate(new_steps)]
        finally:
            gc.unfreeze()
        (_, of_items), (_, of_steps) = self.columns
        return Counts(_table(items, of_items), _table(steps, of_steps))


def counted(shards: ShardDataset, episodes: Sequence[int], counter: Counter) -> Counts:
    """The counts of episodes, from the file beside the shards where there is one. `episodes`: ascending numbers."""
    if sum(len(shards.screen_sizes[number]) for number in episodes) < _LEAST_STEPS:
        return counter.over(shards, episodes)
    path = shards.directory / ".lengths" / f"{_key(shards, episodes, counter)}.npz"
    if (found := _read(path, shards, episodes, counter)) is not None:
        return found
    with ExitStack() as stack:
        try:
            stack.enter_context(_alone(path.with_suffix(".lock")))
            if (found := _read(path, shards, episodes, counter)) is not None:
                return found
        except OSError as error:
            _warn_unwritable(path, error)
            return counter.over(shards, episodes)
        found = counter.over(shards, episodes)
        _write(path, found)
        return found


def tokenizer_digest(tokenizer: Any) -> str:
    """sha256 of what decides the tokens of a text."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    content = json.dumps(tokenizer.get_vocab(), sort_keys=True) if backend is None else backend.to_str()
    # Padding and truncation, which precede the added tokens, are set by calls.
    at = max(content.find('"added_tokens"'), 0)
    return hashlib.sha256(f"{type(tokenizer).__qualname__} {content[at:]}".encode()).hexdigest()


def _table(rows: list[Row], names: tuple[str, ...]) -> np.ndarray:
    return np.array(rows, np.dtype([(name, np.int64) for name in names]))


def _key(shards: ShardDataset, episodes: Sequence[int], counter: Counter) -> str:
    decisive = [_VERSION, counter.identity, counter.items, counter.steps, [*map(int, episodes)]]
    decisive.append([shards.ids[number] for number in episodes])
    digest = hashlib.sha256(manifest_content(shards.directory))
    digest.update(json.dumps(decisive, sort_keys=True).encode())
    return digest.hexdigest()[:32]


def _read(path: Path, shards: ShardDataset, episodes: Sequence[int], counter: Counter) -> Counts | None:
    """None without a file, or with a message if it is damaged or outdated."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found = Counts(*(file[name] for name, _ in counter.columns))
        for rows, (_, names) in zip((found.items, found.steps), counter.columns, strict=True):
            if rows.dtype.names != names:
                raise ValueError(f"it has the columns {rows.dtype.names}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        _warn_outdated(path, f"is damaged ({error})")
        return None
    chosen = np.linspace(0, len(episodes) - 1, min(_SAMPLE, len(episodes))).astype(np.int64)
    for number in np.unique(chosen).tolist():
        again, kept = counter.over(shards, [episodes[number]]), found.of(episodes[number])
        if not (np.array_equal(again.items, kept.items) and np.array_equal(again.steps, kept.steps)):
            _warn_outdated(path, "was written by another version of this program")
            return None
    return found


def _warn_outdated(path: Path, why: str) -> None:
    _LOG.warning("%s %s; the tokens are counted again", path, why)


def _write(path: Path, counts: Counts) -> None:
    try:
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.savez(file, items=counts.items, steps=counts.steps)
    except OSError as error:
        _warn_unwritable(path, error)


def _warn_unwritable(path: Path, error: OSError) -> None:
    if os.environ.get("RANK", "0") == "0":
        _LOG.warning(
            "token counts cannot be kept in %s (%s), so every start counts them again; allow writing there",
            path.parent,
            error.strerror or error,
        )


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Waits while another process holds the lock, but not for ever."""
    with ExitStack() as stack:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                stack.enter_context(file_lock(lock, "another process counts the same tokens"))
                break
            except DatasetError:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.1)
        yield
