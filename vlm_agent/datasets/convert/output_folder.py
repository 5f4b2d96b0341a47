"""The folder that a conversion fills: who may write to it, and what interrupted runs have left in it."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vlm_agent.datasets import PARTIAL, DatasetError
from vlm_agent.datasets.convert.plan import WORK

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
"""These meet whatever is written next as well."""


@contextmanager
def held(output: Path, shared: bool = False) -> Iterator[None]:
    """Holds the folder for one run, or `shared` among the tasks of a job array; the kernel lets go when a run dies.

    Whoever holds it alone removes what interrupted runs have left half written.

    Raises DatasetError when another run holds it, and for an OSError in the block that says that nothing can be written
    any more. Only a file system with locks (NFS 4, Lustre mounted with `flock`) can tell of a run on another machine.
    """
    try:
        with _locked(output, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
            if shared:
                yield
            else:
                with _swept(output):
                    yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise DatasetError(
            f"nothing more can be written to {output}: {os.strerror(error.errno)}; when that is mended, the same "
            "command goes on from here"
        ) from None


@contextmanager
def _locked(output: Path, kind: int) -> Iterator[None]:
    (output / WORK).mkdir(parents=True, exist_ok=True)
    with (output / WORK / "lock").open("w") as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DatasetError(f"another run is converting into {output}; wait for it, or stop it") from None
        yield


@contextmanager
def _swept(output: Path) -> Iterator[None]:
    _sweep(output)
    try:
        yield
    finally:
        _sweep(output)


def _sweep(output: Path) -> None:
    for path in output.rglob(f".*{PARTIAL}"):
        path.unlink(missing_ok=True)
