"""What a check is, and the errors by which it reports that something is missing or fails."""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from vlm_agent.errors import UserError
from vlm_agent.files.console import only_printable


@dataclass(frozen=True)
class Check:
    """`run` performs a real action and returns what was found, in a few words. It imports heavy libraries itself.

    It raises AbsentError where something is not installed and BrokenError where it does not work; any other exception
    counts as broken, too. `action`: what it does. `needed_by`: the commands and keys that need it. `remedy`: what to do
    where it is missing or fails, unless the error has a remedy of its own. `is_required`: nothing trains without it.
    """

    run: Callable[[], str]
    action: str
    needed_by: tuple[str, ...]
    remedy: str
    is_required: bool = False


class BrokenError(UserError):
    """Something is installed and does not work."""

    status = "broken"

    def __init__(self, problem: str, remedy: str | None = None) -> None:
        super().__init__(problem)
        self.remedy = remedy


class AbsentError(BrokenError):
    """Something is not installed, or this machine lacks it."""

    status = "absent"


def require_package(name: str) -> None:
    """Raises AbsentError where the module `name` is not installed."""
    if find_spec(name) is None:
        raise AbsentError(f"the Python package {name} is not installed")


def output_of(command: Sequence[str]) -> str:
    """What a program prints to stdout. Raises BrokenError where it does not start, or exits with another status than 0.

    Without a time limit of its own: the whole check has one.
    """
    try:
        done = subprocess.run(  # noqa: S603 (no shell; programs of this machine)
            list(command), capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise BrokenError(f"{command[0]} cannot be started: {error.strerror}") from error
    if done.returncode:
        words = one_line(done.stderr) or one_line(done.stdout) or "no message"
        raise BrokenError(f"`{' '.join(command)}` exits with status {done.returncode}: {words}")
    return done.stdout


LONGEST = 240
"""The limit of a message, in characters: one line each."""


def one_line(text: str) -> str:
    """The first line of `text` that is not empty, without control characters, shortened; "" where all are empty."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    printable = only_printable(line.strip())
    return printable if len(printable) <= LONGEST else f"{printable[: LONGEST - 1]}…"
