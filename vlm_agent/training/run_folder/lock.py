"""One process trains into a run folder at a time."""

import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from vlm_agent.files import file_lock, read_lock

LOCK = "lock"
_WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


def training_state(run: Path) -> str | None:
    """In words, whether a process trains into the folder, was killed, or ended by itself; None if none ever held it.

    A machine whose file system keeps locks to itself does not see those of others, and cannot tell the first two apart.
    """
    try:
        lock = read_lock(run / LOCK)
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        return f"started; the file system has no locks ({error.strerror}), so it is unknown whether it is running"
    if lock is None:
        return None
    is_held, owner = lock
    if is_held:
        return f"running: {owner}"
    if not owner:
        return "interrupted; run the same command again to resume"
    elsewhere = (
        "" if f" on {socket.gethostname()}," in owner else " (or runs on its machine, and the lock is not seen here)"
    )
    return f"killed: {owner}{elsewhere}; run the same command again to resume"


@contextmanager
def run_lock(run: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Holds the run folder for this process. Only rank 0 calls it, because only rank 0 writes what all ranks share.

    Raises DatasetError, which names host and process of the owner, where another process holds it. Where the file
    system has no locks, `say` gets a warning and the run starts.
    """
    owner = f"process {os.getpid()} on {socket.gethostname()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    refusal = (
        f"another process is training into {run}; wait for it, or stop it on its machine; its end releases the folder, "
        "also that of a crashed machine once the file server notices"
    )
    with ExitStack() as stack:
        try:
            stack.enter_context(file_lock(run / LOCK, refusal, owner=owner))
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                raise
            say(f"{run}: the file system has no locks ({error.strerror}); make sure that no other process trains here")
        yield
