"""A full disk, under whichever error the library that writes reports it."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.filesize import decimal
from safetensors import SafetensorError

from vlm_agent.errors import TrainingError
from vlm_agent.files.jobs import NO_ROOM

_OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""In the messages of safetensors, which is written in Rust."""

_TORCH_WRITER = re.compile(r"inline_container|PytorchStreamWriter|unexpected pos")
"""`torch.save` reports any failed write so, without its reason."""

_PROBE = 16 << 20


@contextmanager
def explained_full_disk(run: Path) -> Iterator[None]:
    """Raises TrainingError, which names the run folder and its disk, in place of an error in the block that comes from
    a disk that is full or may not be written to."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        number = next(filter(None, (_number(one, run) for one in _causes(error))), None)
        if number is None:
            raise
        raise TrainingError(
            f"cannot write to {run}: {os.strerror(number)}; its disk, mounted at {_mount(run)}, has "
            f"{decimal(shutil.disk_usage(run).free)} free. Make room, then run the same command again to resume from "
            "the newest checkpoint"
        ) from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _number(error: BaseException, run: Path) -> int | None:
    """The number of the operating system's error, if it is one of a disk that takes no more."""
    if isinstance(error, OSError):
        number = error.errno
    elif isinstance(error, SafetensorError):
        found = _OS_ERROR.search(str(error))
        number = None if found is None else int(found[1])
    else:
        number = _failed_write(run) if _TORCH_WRITER.search(str(error)) else None
    return number if number in NO_ROOM else None


def _failed_write(run: Path) -> int | None:
    """The number of the error that another write to the folder has now; None if it succeeds."""
    path = run / f".room-{os.getpid()}"
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, _PROBE)
    except OSError as error:
        return error.errno
    finally:
        path.unlink(missing_ok=True)
    return None


def _mount(path: Path) -> Path:
    path = path.absolute()
    return next(parent for parent in (path, *path.parents) if parent.is_mount())
