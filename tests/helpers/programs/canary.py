"""Notices what code in this process does to the machine: programs that it starts, files that it writes or removes."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.startfile")
_CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.link", "os.symlink")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_watching: list[list[str]] = []


@contextmanager
def watched() -> Iterator[list[str]]:
    """The list of what any thread does to the machine meanwhile, empty if nothing."""
    seen: list[str] = []
    _watching.append(seen)
    try:
        yield seen
    finally:
        _watching.remove(seen)


def _note(event: str, arguments: tuple) -> None:
    if _watching and (event in _STARTS + _CHANGES or (event == "open" and _writes(arguments))):
        for seen in _watching:
            seen.append(f"{event} {arguments}")


def _writes(arguments: tuple) -> bool:
    _, mode, flags = arguments
    return any(letter in (mode or "") for letter in "wax+") or bool((flags or 0) & _WRITING)


sys.addaudithook(_note)  # stays until the process ends: Python cannot remove one
