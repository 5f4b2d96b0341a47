"""The folder that a conversion fills: who may write to it, and what interrupted runs have left in it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.convert.plan import WORK
from vlm_agent.datasets.locks import locked, remove_partials

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
"""These meet whatever is written next as well."""


@contextmanager
def held(output: Path, shared: bool = False) -> Iterator[None]:
    """Holds the folder for one run, or `shared` among the tasks of a job array (see `locked`).

    Whoever holds it alone removes what interrupted runs have left half written.

    Raises DatasetError when another run holds it, and for an OSError in the block that says that nothing can be written
    any more.
    """
    try:
        refusal = f"another run is converting into {output}; wait for it, or stop it"
        with locked(output / WORK / "lock", refusal, shared):
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
def _swept(output: Path) -> Iterator[None]:
    remove_partials(output)
    try:
        yield
    finally:
        remove_partials(output)
