"""Reads the episodes of an evaluation's parts ahead of the agent, in a thread or in loader processes.

A GPU answers the steps of an episode faster than one core decodes and resizes their screens. Loader processes do that
work for an agent that allows it (`Agent.preparation`): each takes one episode at a time and prepares it for every run.
The agent receives the same arrays as without them, in the same batches, so predictions do not depend on their number.
"""

import ctypes
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from vlm_agent.agents.agent import Preparation
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode, without_pixels
from vlm_agent.errors import DatasetError, UserError
from vlm_agent.files.threads import ahead

_MOST_WORKERS = 8


def default_workers() -> int:
    """Half of the cores that this process may use, at most eight; 0 on two cores or fewer."""
    cores = len(os.sched_getaffinity(0))
    return 0 if cores <= 2 else min(_MOST_WORKERS, cores // 2)


@dataclass(frozen=True)
class PartWork:
    """A part: its episodes' numbers in the data set, and the runs that lack it."""

    number: int
    episodes: Sequence[int]
    runs: tuple[str, ...]


@dataclass(frozen=True)
class LoadedPart:
    """`prepared`: by run, what `Agent.answer_prepared` takes; the episodes then have no pixels. Empty:
    they are answered from their pixels."""

    number: int
    episodes: list[Episode]
    prepared: dict[str, list[Any]]


def loaded_parts(
    dataset: ShardDataset, work: Sequence[PartWork], preparations: Mapping[str, Preparation | None], workers: int
) -> AbstractContextManager[Iterator[LoadedPart]]:
    """Each part in order, while the next ones are read in the background.

    `workers` processes prepare episodes; with 0, or where a run has no preparation, a thread reads them. Raises
    DatasetError for an episode that cannot be read, and where a process dies.
    """
    ready = {name: preparation for name, preparation in preparations.items() if preparation is not None}
    if workers and len(ready) == len(preparations):
        return _from_processes(dataset, work, ready, workers)
    return ahead(partial(_read, dataset), work, _READERS)


_READERS = 1
"""Threads that read ahead: one part is in memory beside the one that is used."""


def _read(dataset: ShardDataset, part: PartWork) -> LoadedPart:
    return LoadedPart(part.number, [dataset[index] for index in part.episodes], {})


@dataclass(frozen=True)
class _PreparedEpisode:
    """`error`: the message of a UserError, in place of the rest."""

    episode: Episode | None = None
    by_run: Mapping[str, Any] | None = None
    error: str | None = None


class _Preparing:
    """The data set of the loader processes: one item an episode of the work, in order."""

    def __init__(
        self, dataset: ShardDataset, work: Sequence[PartWork], preparations: Mapping[str, Preparation]
    ) -> None:
        self._dataset, self._preparations = dataset, preparations
        self._wanted = [(index, part.runs) for part in work for index in part.episodes]

    def __len__(self) -> int:
        return len(self._wanted)

    def name(self, place: int) -> str:
        return self._dataset.ids[self._wanted[place][0]]

    def __getitem__(self, place: int) -> _PreparedEpisode:
        index, runs = self._wanted[place]
        try:
            episode = self._dataset[index]
            prepared = {name: self._preparations[name](episode) for name in runs}
        except UserError as error:
            return _PreparedEpisode(error=str(error))
        except OSError as error:
            return _PreparedEpisode(error=f"{self._dataset.directory}: episode {self.name(place)}: {error}")
        return _PreparedEpisode(without_pixels(episode), prepared)


@contextmanager
def _from_processes(
    dataset: ShardDataset, work: Sequence[PartWork], preparations: Mapping[str, Preparation], workers: int
) -> Iterator[Iterator[LoadedPart]]:
    import torch
    from torch.utils.data import DataLoader

    # A process that is forked while its tokenizer may use threads prints a warning.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    preparing, done, stopped = _Preparing(dataset, work, preparations), 0, threading.Event()
    loader: DataLoader = DataLoader(
        preparing,  # type: ignore[arg-type]
        batch_size=None,
        num_workers=min(workers, len(preparing)),
        collate_fn=_unchanged,
        worker_init_fn=partial(_end_with, os.getpid()),
        generator=torch.Generator(),  # a DataLoader draws a seed from its generator
    )
    episodes = iter(loader)

    def load(part: PartWork) -> LoadedPart:
        nonlocal done
        found = list[_PreparedEpisode]()
        for _ in part.episodes:
            if stopped.is_set():
                break
            found.append(next(episodes))
            if found[-1].error is not None:
                raise DatasetError(found[-1].error)
            done += 1
        prepared = {name: [(one.by_run or {})[name] for one in found] for name in part.runs}
        return LoadedPart(part.number, [one.episode for one in found if one.episode is not None], prepared)

    try:
        with ahead(load, work, _READERS, stopped.set) as parts:
            yield parts
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker (pid"):  # torch's message for a process that died
            raise
        raise DatasetError(
            f"a process that prepares screens died at episode {preparing.name(min(done, len(preparing) - 1))} or just "
            "after it, possibly out of memory; run the same command again to resume, with fewer --workers if needed"
        ) from None


def _unchanged(item: Any) -> Any:
    return item


_PR_SET_PDEATHSIG = 1


def _end_with(parent: int, worker: int) -> None:
    """Leaves Ctrl-C to the parent, and has the kernel kill this process when the parent ends.

    torch's own watchdog does not suffice: the process first waits for its screens to be read from a pipe, whose other
    end is also open in the other loader processes. Linux watches the thread that forked, which is the main thread.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)
