"""Folders that are filled by one process, or by several that know of each other."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vlm_agent.datasets import PARTIAL, DatasetError


@contextmanager
def locked(path: Path, refusal: str, shared: bool = False) -> Iterator[None]:
    """Holds a lock file, alone or `shared`; the kernel lets go when a process dies.

    Raises DatasetError with `refusal` when another process holds it. Only a file system with locks (NFS 4, Lustre
    mounted with `flock`) can tell of one on another machine.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DatasetError(refusal) from None
        yield


def remove_partials(folder: Path) -> None:
    """Removes what killed processes have left half written (`written_whole`); for whoever holds the folder alone."""
    for path in folder.rglob(f".*{PARTIAL}"):
        path.unlink(missing_ok=True)
