"""SHA-256 of the files of a checkpoint, divided among the ranks.

One rank would take many minutes for the optimiser states of a large model, while the others wait in a collective.
"""

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vlm_agent.training.loop import ranks

_THREADS = 8
_WRITER = re.compile(r"(?:rank|rng_state)_(\d+)")
"""In the names of files that each rank writes for itself: rng_state_3.pth, bf16_zero_pp_rank_3_mp_rank_00_….pt."""


def digests(checkpoint: Path, sizes: Mapping[str, int], durable: bool) -> dict[str, str]:
    """The SHA-256 of each file, in hexadecimal; `sizes`: bytes by relative path, the same on all ranks.

    `durable`: the files are also written to the disk, each by the rank that wrote it: what another machine has in its
    page cache, `fsync` does not reach. A collective: every rank must call it, and all of them raise OSError where one
    cannot read a file.
    """
    if durable:
        _on_ranks(checkpoint, {name: _writer(name, ranks.count()) for name in sizes}, _persist)
    return _on_ranks(checkpoint, _readers(sizes, ranks.count()), _digest)


def _on_ranks(checkpoint: Path, owners: Mapping[str, int], work: Callable[[Path], str]) -> dict[str, str]:
    """The result of `work` for each file, done by its owner. A collective; raises OSError on all ranks."""
    mine = [name for name, rank in owners.items() if rank == ranks.number()]
    with ThreadPoolExecutor(_THREADS) as pool:  # hashing and writing release the GIL
        lines = list(pool.map(lambda name: _line(checkpoint, name, work), mine))
    results = [line.split("\t") for line in ranks.gathered(lines)]
    for result, name, *error in results:
        if not result:
            raise OSError(int(error[0]), f"cannot be read: {error[1]}", str(checkpoint / name))
    return {name: result for result, name, *_ in results}


def _line(checkpoint: Path, name: str, work: Callable[[Path], str]) -> str:
    """A raised error would leave the other ranks waiting; it becomes a line without a result."""
    try:
        return f"{work(checkpoint / name)}\t{name}"
    except OSError as error:
        return f"\t{name}\t{error.errno or 0}\t{error.strerror}"


def _persist(path: Path) -> str:
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return "on the disk"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _writer(name: str, count: int) -> int:
    """The rank, of `count`, that wrote a file: rank 0 unless its name says another."""
    writer = _WRITER.search(name)
    return 0 if writer is None else int(writer[1]) % count


def _readers(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """The rank, of `count`, that reads each file: the one that wrote it, which has it in its page cache; else the one
    with the least to read."""
    readers, load = {}, [0] * count
    for name, size in sorted(sizes.items(), key=lambda item: (_WRITER.search(item[0]) is None, -item[1], item[0])):
        rank = _writer(name, count) if _WRITER.search(name) else load.index(min(load))
        readers[name] = rank
        load[rank] += size
    return readers
