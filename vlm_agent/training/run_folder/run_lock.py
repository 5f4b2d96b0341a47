"""`RUN/lock`: one process trains into a run folder at a time.

Two would overwrite each other's checkpoints: a requeued job beside one that hangs on another machine, for example. The
kernel releases the lock when its process ends, however it ends, so that the next start takes over.
"""

import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from vlm_agent.files import file_lock

LOCK = "lock"
_WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
_held: list[TextIO] = []


@contextmanager
def run_lock(run: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Holds the run folder for this process. Only rank 0 calls it, because only rank 0 writes what all ranks share.

    Raises DatasetError, which names host and process of the owner, where another process holds it. Where the file
    system has no locks, `say` gets a warning and the run starts.
    """
    owner = f"process {os.getpid()} on {socket.gethostname()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    refusal = f"another process is training into {run}; wait for it, or stop it"
    with ExitStack() as stack:
        try:
            file = stack.enter_context(file_lock(run / LOCK, refusal, owner=owner))
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                raise
            say(f"{run}: the file system has no locks ({error.strerror}); make sure that no other process trains here")
        else:
            _held.append(file)
            stack.callback(_held.remove, file)
        yield


def _close_in_child() -> None:
    """A worker of a DataLoader outlives a killed run by seconds, and would hold its lock for as long."""
    for file in _held:
        file.close()


os.register_at_fork(after_in_child=_close_in_child)
