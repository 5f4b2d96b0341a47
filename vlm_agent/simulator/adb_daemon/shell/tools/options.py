"""Options of the phone's programs."""

import getopt

from vlm_agent.simulator.adb_daemon.shell.session import ToolError


def short_options(program: str, words: list[str], known: str) -> tuple[dict[str, str], list[str]]:
    """The options of a program (`-x` → its value or an empty text) and its other words.

    `known`: letters, with a colon after one that has a value. Raises ToolError for others.
    """
    try:
        options, rest = getopt.gnu_getopt(words, known)
    except getopt.GetoptError as error:
        raise ToolError(f"{program}: {error.msg}") from None
    return dict(options), rest


def number(program: str, text: str) -> int:
    """A number that is not negative. Raises ToolError for other texts."""
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise ToolError(f"{program}: bad number {text!r}")
    return int(text)
