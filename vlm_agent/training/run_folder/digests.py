"""SHA-256 of the files of a checkpoint, divided among the ranks.

One rank would take many minutes for the optimiser states of a large model, while the others wait in a collective.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vlm_agent.training.loop import ranks

_THREADS = 8
_WRITER = re.compile(r"(?:rank|rng_state)_(\d+)")
"""In the names of files that each rank writes for itself: rng_state_3.pth, bf16_zero_pp_rank_3_mp_rank_00_….pt."""


def digests(checkpoint: Path, sizes: Mapping[str, int], durable: bool) -> dict[str, str]:
    """The SHA-256 of each file, in hexadecimal; `sizes`: bytes by relative path, the same on all ranks.

    `durable`: the files are also written to the disk. A collective: every rank must call it, and all of them raise
    OSError where one cannot read a file.
    """
    mine = [name for name, rank in _readers(sizes, ranks.count()).items() if rank == ranks.number()]
    with ThreadPoolExecutor(_THREADS) as pool:  # hashing releases the GIL
        lines = list(pool.map(lambda name: _line(checkpoint, name, durable), mine))
    results = [line.split("\t") for line in ranks.gathered(lines)]
    for digest, name, *error in results:
        if not digest:
            raise OSError(int(error[0]), f"cannot be read: {error[1]}", str(checkpoint / name))
    return {name: digest for digest, name, *_ in results}


def _line(checkpoint: Path, name: str, durable: bool) -> str:
    """A raised error would leave the other ranks waiting; it becomes a line without a digest."""
    try:
        return f"{_digest(checkpoint / name, durable)}\t{name}"
    except OSError as error:
        return f"\t{name}\t{error.errno or 0}\t{error.strerror}"


def _digest(path: Path, durable: bool) -> str:
    with path.open("rb") as file:
        if durable:
            os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _readers(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """The rank, of `count`, that reads each file: the one that wrote it, which has it in its page cache; else the one
    with the least to read."""
    readers, load = {}, [0] * count
    for name, size in sorted(sizes.items(), key=lambda item: (_WRITER.search(item[0]) is None, -item[1], item[0])):
        writer = _WRITER.search(name)
        rank = load.index(min(load)) if writer is None else int(writer[1]) % count
        readers[name] = rank
        load[rank] += size
    return readers
