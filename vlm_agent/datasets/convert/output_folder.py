"""Exclusive use of the folder that a conversion writes to."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vlm_agent.datasets.convert.plan import job
from vlm_agent.errors import DatasetError

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
"""Errors of the file system that further writes would raise, too."""


@contextmanager
def lock_output(output: Path, shared: bool = False) -> Iterator[None]:
    """Locks the folder for one run, or with `shared` for the tasks of a job array (see `Job.locked`).

    Raises DatasetError if another run has the lock, and in place of an OSError of `NO_ROOM` in the block.
    """
    try:
        with job(output).locked(shared):
            yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise DatasetError(
            f"cannot write to {output}: {os.strerror(error.errno)}; fix this, then run the same command again to resume"
        ) from None
