"""Actions as commands of Android's shell.

A command is its words. They become a line in one place only, `command_line`, which quotes every word; what is typed
comes from a model and could be anything.
"""

import base64
import shlex
from collections.abc import Sequence

from vlm_agent.devices.errors import UntypableTextError

Words = Sequence[str]

SWIPE_MILLISECONDS = 300
"""Quick enough that Android takes it for a swipe, slow enough that it does not fling a list to its end."""

KEYS = {"back": "4", "home": "3", "enter": "66"}
"""Numbers of Android's `KeyEvent`."""

UNICODE_KEYBOARD = "com.android.adbkeyboard/.AdbIME"

LONGEST_LINE = 65_000
"""In bytes. A request to adb's server has at most 65,535, of which its own words take some."""


def command_line(*commands: Words) -> str:
    """The line that runs the commands one after the other, until one fails. Raises ValueError for a zero byte, behind
    which Android would not read on."""
    if any("\0" in word for words in commands for word in words):
        raise ValueError("a word of a command holds a zero byte")
    return " && ".join(" ".join(map(shlex.quote, words)) for words in commands)


def tap(y: int, x: int) -> Words:
    """`y`, `x` in pixels."""
    return ("input", "tap", str(x), str(y))


def swipe(touch: tuple[int, int], lift: tuple[int, int]) -> Words:
    """From `touch` to `lift`, (y, x) in pixels."""
    places = (touch[1], touch[0], lift[1], lift[0], SWIPE_MILLISECONDS)
    return ("input", "swipe", *map(str, places))


def press(button: str) -> Words:
    return ("input", "keyevent", KEYS[button])


def type_by_broadcast(text: str) -> list[Words]:
    """Typed by ADBKeyBoard: any text of up to about 48,000 bytes; nobody but it gets to read the broadcast.

    Raises UntypableTextError for longer ones.
    """
    encoded = base64.b64encode(text.encode()).decode()
    package = UNICODE_KEYBOARD.partition("/")[0]
    words = ("am", "broadcast", "-a", "ADB_INPUT_B64", "--es", "msg", encoded, "-p", package)
    return _fitting([words] if text else [], text)


def type_by_keys(text: str) -> list[Words]:
    """Typed by Android's `input text`: what is on an American keyboard, without line breaks, which would press enter.

    `input text` turns %s into a blank and has no way to write the two as such, so they are typed in two commands.
    Raises UntypableTextError for other text, and for more than one line of the shell holds.
    """
    odd = next((letter for letter in text if not " " <= letter <= "~"), None)
    if odd is not None:
        raise UntypableTextError(
            f"{odd!r} cannot be typed with `adb shell input text`; install ADBKeyBoard on the phone "
            "(https://github.com/senzhk/ADBKeyBoard, or F-Droid: com.android.adbkeyboard), which types any text, and "
            "connect again"
        )
    parts = text.replace("%s", "%\0s").split("\0")
    return _fitting([("input", "text", part.replace(" ", "%s")) for part in parts if part], text)


def _fitting(commands: list[Words], text: str) -> list[Words]:
    size = len(command_line(*commands).encode())
    if size > LONGEST_LINE:
        raise UntypableTextError(
            f"the text has {len(text):,} characters, and the command that types it {size:,} bytes; adb takes at most "
            f"{LONGEST_LINE:,} at once"
        )
    return commands
