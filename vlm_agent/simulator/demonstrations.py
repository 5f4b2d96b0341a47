"""Demonstrations on the simulated phone: one episode, or a whole data set in AITW's format."""

import hashlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from rich.console import Console

from vlm_agent.datasets.sources.aitw import write_episodes
from vlm_agent.episodes import Episode
from vlm_agent.errors import DatasetError
from vlm_agent.files import atomic_folder, is_free, write_json
from vlm_agent.files.console import Progress, make_console
from vlm_agent.simulator import SPLITS, SUBSETS, Task
from vlm_agent.simulator.opening import SimulatedTask, device_type
from vlm_agent.simulator.phone import SIZE

SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}
EPISODES_A_FILE = 100


def phone_seed(seed: int, split: str) -> int:
    """The seed of an episode's phone and task: 62 bits of a hash, then two bits for the split.

    No two splits share a phone, and the split can be read from an episode's id. Raises ValueError for an unknown split.
    """
    if split not in SPLITS:
        raise ValueError(f"split {split!r} is unknown; use {', '.join(SPLITS)}")
    digest = hashlib.sha256(f"phone {split} {seed}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 2 << 2) + SPLITS.index(split)


def subset_of(number: int) -> str:
    """The subset of the episode with this phone seed. All subsets are equally frequent."""
    return SUBSETS[(number >> 2) % len(SUBSETS)]


def simulate_episode(
    seed: int, split: str, size: tuple[int, int] = SIZE, thoughts: bool = False, scale: int = 1
) -> tuple[Episode, Task]:
    """One demonstration and the task it solves; `size` is (height, width). The same arguments give the same episode.

    `thoughts`: whether its steps have notes; nothing else depends on it. `scale`: screens
    are rendered at this multiple of `size`; only their pixels depend on it.
    """
    number = phone_seed(seed, split)
    phone, task = SimulatedTask(subset_of(number), split, number, size, scale).fresh_phone()
    steps = task.solve(phone, thoughts=thoughts)
    return Episode(str(number), task.subset, task.goal, steps, device_type(size), phone.theme.api_level), task


def simulated_tasks(
    count: int,
    seed: int,
    split: str = "test",
    size: tuple[int, int] = SIZE,
    scale: int = 1,
    templates: Collection[str] = (),
) -> list[SimulatedTask]:
    """The first `count` tasks of a seed, those that `simulate` records of the split, in its order; a larger count only
    adds tasks. `templates`: without tasks of others, if there are any."""
    numbers = (phone_seed((seed << 32) + index, split) for index in itertools.count())
    tasks = (SimulatedTask(subset_of(number), split, number, size, scale) for number in numbers)
    return list(itertools.islice((task for task in tasks if not templates or task.template in templates), count))


@dataclass(frozen=True)
class _File:
    """A file to write: its path, the (seed, split, size) of its episodes in order, whether steps have texts, and the
    scale of screens."""

    path: Path
    episodes: tuple[tuple[int, str, tuple[int, int]], ...]
    thoughts: bool
    scale: int


def simulate(
    output: Path,
    episodes: int,
    seed: int = 0,
    splits: Mapping[str, float] = SHARES,
    sizes: Iterable[tuple[int, int]] = (SIZE,),
    workers: int | None = None,
    console: Console | None = None,
    thoughts: bool = False,
    scale: int = 1,
) -> None:
    """Writes `episodes` demonstrations as AITW TFRecords, `<subset>/<subset>-00000-of-0000N`.

    Also writes `splits.json` (label → episode ids) and `groups.json` (`memory_goals`: the ids of episodes whose goal
    requires memory). `splits` is the fraction of each split, `sizes` the (height, width) pairs to choose from. The same
    arguments produce the same bytes for any number of `workers` (None: one per core). `thoughts`: each step has the
    notes of the expert; without it, the bytes have no trace of them. `scale`: screens are rendered at this
    multiple of their size; actions and annotations are the same at every scale. `output` appears only when it is
    complete.

    Raises DatasetError if `output` exists and is not an empty folder, and for invalid numbers or splits.
    """
    _check(output, episodes, splits)
    console = make_console() if console is None else console
    start = time.monotonic()
    plan = list(_plan(episodes, seed, splits, tuple(sizes)))
    with atomic_folder(output) as folder:
        files = _files(folder, plan, thoughts, scale)
        steps, memory = 0, []
        with Progress(console, len(plan), "episodes").shown() as progress:
            for count, written, ids in _results(files, workers or len(os.sched_getaffinity(0))):
                progress.advance(count, "simulating", is_stage_end=True)
                steps += written
                memory += ids
        labels = {
            split: [str(phone_seed(number, label)) for number, label, _ in plan if label == split] for split in splits
        }
        write_json(folder / "splits.json", labels)
        write_json(folder / "groups.json", {"memory_goals": sorted(memory)})
    seconds = time.monotonic() - start
    counts = ", ".join(f"{len(ids)} {split}" for split, ids in labels.items())
    console.print(
        f"Wrote {len(plan)} episodes ({counts}; {len(memory)} memory goals) with {steps} steps in {len(files)} files "
        f"to {output}: {steps / seconds:.0f} steps/s, {seconds:.0f} s.",
        highlight=False,
        soft_wrap=True,
    )


def _check(output: Path, episodes: int, splits: Mapping[str, float]) -> None:
    if not is_free(output):
        raise DatasetError(f"{output} exists and is not an empty folder; choose another folder")
    if episodes < 1:
        raise DatasetError(f"the number of episodes is {episodes}; it must be 1 or greater")
    if unknown := set(splits) - set(SPLITS):
        raise DatasetError(f"unknown splits {', '.join(sorted(unknown))}; use {', '.join(SPLITS)}")
    if not splits or min(splits.values()) < 0 or abs(sum(splits.values()) - 1) > 1e-6:
        raise DatasetError(f"the fractions of the splits are {dict(splits)}; they must be at least 0 and sum to 1")


def _plan(episodes: int, seed: int, splits: Mapping[str, float], sizes: tuple) -> Iterator[tuple]:
    """(seed, split, size) of each episode; shares are rounded so that their sum is exactly `episodes`."""
    done, share = 0, 0.0
    for split in splits:
        share += splits[split]
        until = round(share * episodes)
        for index in range(until - done):
            number = (seed << 32) + index
            yield number, split, sizes[phone_seed(number, split) // 4 // len(SUBSETS) % len(sizes)]
        done = until


def _files(folder: Path, plan: list[tuple], thoughts: bool, scale: int) -> list[_File]:
    """The plan divided into files of one subset each. The order depends only on the plan."""
    files = []
    for subset in SUBSETS:
        rows = [row for row in plan if subset_of(phone_seed(row[0], row[1])) == subset]
        parts = [tuple(rows[at : at + EPISODES_A_FILE]) for at in range(0, len(rows), EPISODES_A_FILE)]
        for index, part in enumerate(parts):
            path = folder / subset / f"{subset}-{index:05d}-of-{len(parts):05d}"
            files.append(_File(path, part, thoughts, scale))
    return files


def _results(files: list[_File], workers: int) -> Iterator[tuple[int, int, list[str]]]:
    for file in files:
        file.path.parent.mkdir(exist_ok=True)
    if workers == 1:
        yield from map(_write_file, files)
        return
    context = get_context("spawn")  # forking a process that has started threads (torch, a progress bar) may hang
    parent, end = context.Pipe(duplex=False)
    with ProcessPoolExecutor(min(workers, len(files)), context, _end_with, (parent,)) as pool:
        try:
            for future in as_completed([pool.submit(_write_file, file) for file in files]):
                yield future.result()
        except BrokenProcessPool as error:
            raise DatasetError(
                "a process that simulates was killed, possibly for lack of memory; run the same command again, with "
                "fewer --workers if needed"
            ) from error
        except BaseException:
            end.close()  # the pool alone would write all other files first
            raise


def _end_with(parent: Connection) -> None:
    """Ends a worker as soon as the other end of `parent` is closed, also by a parent that is killed: a worker left
    behind would write into the files of the next run. The parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait() -> None:
        with suppress(EOFError):
            parent.recv()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _write_file(file: _File) -> tuple[int, int, list[str]]:
    """Episodes and steps written, and the ids of the memory goals among them."""
    memory: list[str] = []

    def episodes() -> Iterator[Episode]:
        for seed, split, size in file.episodes:
            episode, task = simulate_episode(seed, split, size, file.thoughts, file.scale)
            if task.memory:
                memory.append(episode.id)
            yield episode

    return len(file.episodes), write_episodes(file.path, episodes()), memory
