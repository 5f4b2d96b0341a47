"""Errors whose message is meant for the person at the terminal.

The command line prints a `UserError` as one line and exits with status 1. Every other exception is a bug and keeps its
traceback; so does a ValueError from a strict `zip`, a failed unpacking or numpy broadcasting inside this package.
"""

import re


class UserError(Exception):
    """Something the user asked for cannot be done. The message names what is wrong, where, and what to do."""


class DatasetError(UserError):
    """Data is damaged or missing, or a request does not fit the data."""


class CheckpointError(UserError):
    """A checkpoint that cannot be loaded, or does not fit the recipe."""


class RecipeError(UserError):
    """A recipe that cannot be run; the message names the key to change."""


class TrainingError(UserError):
    """A training run that cannot continue."""


_MOVED = re.compile("(remove it|move it away) and ")


def remedy_of_missing(remedy: str) -> str:
    """What to do about a missing file, by what to do about a damaged one, which is moved away first."""
    return _MOVED.sub("", remedy, count=1)


class Stopped(Exception):  # noqa: N818 (not an error)
    """A run that received a stop signal and saved everything; the message names the command that resumes it.

    `STATUS`: of the process, EX_TEMPFAIL of sysexits.h: the same command resumes."""

    STATUS = 75
