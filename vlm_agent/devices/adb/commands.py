"""Actions as commands of Android's shell.

A command is a sequence of words. Only `command_line` joins words into a line, and it quotes every word, because the
text to type comes from a model and is untrusted.
"""

import base64
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from vlm_agent.devices.android import KEYBOARD_BROADCAST, UNICODE_KEYBOARD
from vlm_agent.devices.errors import UntypableTextError

Words = Sequence[str]

_NOTE = re.compile(r"\s*$|\[?warning\b(?!: activity not started)|cutils-trace:", re.IGNORECASE)
"""A line that Android's programs print whether or not they succeed."""


@dataclass(frozen=True)
class Success:
    """What a command prints if it succeeds: only lines that `lines` matches at their beginning, and `sign`.

    Android's programs report failures in words of their own, and often with status 0. Any other line is one.
    """

    sign: str = ""
    lines: re.Pattern[str] = re.compile("(?!)")

    def is_reported_by(self, output: str) -> bool:
        unexpected = (line for line in output.splitlines() if not _NOTE.match(line) and not self.lines.match(line))
        return self.sign in output and next(unexpected, None) is None


SILENT = Success()
"""`input` prints nothing."""

SENT = Success("Broadcast completed: ", re.compile("Broadcast(ing| completed): "))
"""Whether or not anything received the broadcast."""

SWIPE_MILLISECONDS = 300
"""Fast enough to be a swipe for Android, slow enough not to fling a list to its end."""

LONG_PRESS_MILLISECONDS = 1000
"""Android's long-press timeout is 400 to 500 ms by default; accessibility settings raise it to at most 1,500."""

INSTALL = (
    "install ADBKeyBoard on the phone (https://github.com/senzhk/ADBKeyBoard, or F-Droid: com.android.adbkeyboard), "
    "which types any text, and connect again"
)

LONGEST_LINE = 65_000
"""The maximum length of a shell line in bytes. A request to adb's server has at most 65,535, including its header."""


def command_line(*commands: Words) -> str:
    """A shell line that runs the commands in order until one fails.

    Raises ValueError for a zero byte, because Android would cut the line off there.
    """
    if any("\0" in word for words in commands for word in words):
        raise ValueError("a word of a command contains a zero byte")
    return " && ".join(" ".join(map(shlex.quote, words)) for words in commands)


def tap(y: int, x: int) -> Words:
    """A tap at (`y`, `x`) in pixels."""
    return ("input", "tap", str(x), str(y))


def swipe(touch: tuple[int, int], lift: tuple[int, int]) -> Words:
    """A swipe from `touch` to `lift`, both (y, x) in pixels."""
    places = (touch[1], touch[0], lift[1], lift[0], SWIPE_MILLISECONDS)
    return ("input", "swipe", *map(str, places))


def long_press(y: int, x: int) -> Words:
    """A swipe without movement, which Android treats as a long press. `y`, `x` in pixels."""
    return ("input", "swipe", *map(str, (x, y, x, y, LONG_PRESS_MILLISECONDS)))


def press(key_code: int) -> Words:
    """`key_code`: as in Android's `KeyEvent`."""
    return ("input", "keyevent", str(key_code))


def type_by_broadcast(text: str) -> list[Words]:
    """Types with ADBKeyBoard: any text of at most about 48,000 bytes in UTF-8. No other app receives the broadcast.

    Returns no command for an empty text. Raises UntypableTextError for longer text.
    """
    message = base64.b64encode(text.encode()).decode()
    package = UNICODE_KEYBOARD.partition("/")[0]
    words = ("am", "broadcast", "-a", KEYBOARD_BROADCAST, "--es", "msg", message, "-p", package)
    return _check_size([words] if text else [], text)


def type_by_keys(text: str, remedy: str = INSTALL) -> list[Words]:
    """Types with Android's `input text`: printable ASCII only. A line break would press enter, so it is an error.

    `remedy`: what the user can do to type any text.

    `input text` replaces %s by a space and has no escape for it, so a literal %s is split over two commands. Raises
    UntypableTextError for other characters, and for text that does not fit into a shell line.
    """
    untypable = next((letter for letter in text if not " " <= letter <= "~"), None)
    if untypable is not None:
        raise UntypableTextError(f"{untypable!r} cannot be typed with `adb shell input text`; {remedy}")
    parts = text.replace("%s", "%\0s").split("\0")
    return _check_size([("input", "text", part.replace(" ", "%s")) for part in parts if part], text)


def _check_size(commands: list[Words], text: str) -> list[Words]:
    size = len(command_line(*commands).encode())
    if size > LONGEST_LINE:
        raise UntypableTextError(
            f"the text has {len(text):,} characters, and the command that types it {size:,} bytes; adb accepts at most "
            f"{LONGEST_LINE:,} bytes per command"
        )
    return commands
