"""Typing: by ADBKeyBoard where the phone has it and selects it, else by `input text`."""

import base64
import logging
import re
from contextlib import suppress

from vlm_agent.devices.adb.link import AdbLink, Success, Words, command_line
from vlm_agent.devices.android import KEYBOARD_BROADCAST, UNICODE_KEYBOARD
from vlm_agent.devices.errors import DeviceError, RefusedError, UntypableTextError

_LOG = logging.getLogger(__name__)

_ALL = ("ime", "list", "-s", "-a")
_CURRENT = ("settings", "get", "secure", "default_input_method")

SENT = Success("Broadcast completed: ", re.compile("Broadcast(ing| completed): "))
"""Whether or not anything received the broadcast."""

INSTALL = (
    "install ADBKeyBoard on the phone (https://github.com/senzhk/ADBKeyBoard, or F-Droid: com.android.adbkeyboard), "
    "which types any text, and connect again"
)

_ENABLE = "enable ADBKeyBoard in the phone's settings (languages and input), and connect again"

LONGEST_LINE = 65_000
"""The maximum length of a shell line in bytes. A request to adb's server has at most 65,535, including its header."""


class Keyboard:
    """The keyboard of one phone. A keyboard that is not selected ignores its broadcasts, and Android reports success
    all the same, so the phone is asked for its keyboard before each text."""

    def __init__(self, link: AdbLink) -> None:
        self._link = link
        self._is_ours = False
        self._before: str | None = None
        self._remedy = INSTALL

    def select(self) -> None:
        """Selects ADBKeyBoard if it is installed. Warns if the phone does not select it."""
        keyboards = self._link.text(_ALL).split()
        if UNICODE_KEYBOARD not in keyboards:
            return
        before, self._remedy = self._link.text(_CURRENT).strip(), _ENABLE
        self._before = before if before in keyboards else ""
        self._is_ours = self._select()
        if not self._is_ours:
            self._before = None
            self._warn_of_ascii()

    def type(self, text: str) -> None:
        """Raises UntypableTextError, before any typing, for text that the keyboard cannot type."""
        commands = type_by_broadcast(text) if self._is_ours else type_by_keys(text, self._remedy)
        if not commands:
            return
        if not self._is_ours:
            self._link.do(*commands)
        elif self._is_selected() or self._select():
            self._link.do(*commands, success=SENT)
        else:
            self._is_ours = False
            self._warn_of_ascii()
            self.type(text)

    def restore(self) -> None:
        """Selects the keyboard from before, unless the phone is lost, because this would wait for it again. Warns if
        ADBKeyBoard may stay selected."""
        before, self._before = self._before, None
        if before is None or before == UNICODE_KEYBOARD:
            return
        stays = True
        if not self._link.is_lost:
            with suppress(DeviceError):
                # Sent once. The setting decides, not the words of `ime`.
                with suppress(RefusedError):
                    self._link.do(("ime", "set", before) if before else ("ime", "reset"))
                stays = self._is_selected()
        if stays:
            _LOG.warning(
                "ADBKeyBoard may still be the keyboard of %s; choose another one on the phone, or run "
                "`adb -s %s shell ime reset`",
                self._link.serial,
                self._link.serial,
            )

    def _select(self) -> bool:
        # Selecting a keyboard is idempotent, so it may be repeated if the connection breaks.
        self._link.query(("ime", "enable", UNICODE_KEYBOARD), ("ime", "set", UNICODE_KEYBOARD))
        return self._is_selected()

    def _is_selected(self) -> bool:
        return self._link.text(_CURRENT).strip() == UNICODE_KEYBOARD

    def _warn_of_ascii(self) -> None:
        _LOG.warning(
            "%s has ADBKeyBoard and does not select it, so `input text` types: ASCII only, and a step with other text "
            "fails. To type any text, %s",
            self._link.serial,
            _ENABLE,
        )


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
