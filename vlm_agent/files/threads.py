"""Calls in threads, whose pending ones are cancelled when the caller stops."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Loaded = TypeVar("Loaded")


@contextmanager
def stoppable_pool(workers: int, stop: Callable[[], object] = bool) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads. An exception in the block cancels pending calls; `stop` is called first, so that calls under
    way end early."""
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool
    except BaseException:
        stop()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def ahead(
    load: Callable[[Item], Loaded], items: Iterable[Item], workers: int, stop: Callable[[], object] = bool
) -> Iterator[Iterator[Loaded]]:
    """`load` of each item, in order, while `workers` threads load the next ones. `stop`: see `stoppable_pool`.

    At most twice as many items as threads are in memory.
    """
    with stoppable_pool(workers, stop) as pool:
        yield _results(pool, load, items, 2 * workers)


def _results(
    pool: ThreadPoolExecutor, load: Callable[[Item], Loaded], items: Iterable[Item], most: int
) -> Iterator[Loaded]:
    waiting: deque[Future[Loaded]] = deque()
    for item in items:
        waiting.append(pool.submit(load, item))
        if len(waiting) >= most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
