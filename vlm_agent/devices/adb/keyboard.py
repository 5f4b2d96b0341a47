"""Typing: by ADBKeyBoard where the phone has it and selects it, else by `input text`."""

import logging
from contextlib import suppress

from vlm_agent.devices.adb.commands import INSTALL, SENT, Words, type_by_broadcast, type_by_keys
from vlm_agent.devices.adb.link import AdbLink
from vlm_agent.devices.android import UNICODE_KEYBOARD
from vlm_agent.devices.errors import ActionInDoubtError, RefusedError

_LOG = logging.getLogger(__name__)

_ALL = ("ime", "list", "-s", "-a")
_CURRENT = ("settings", "get", "secure", "default_input_method")

_ENABLE = "enable ADBKeyBoard in the phone's settings (languages and input), and connect again"


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
        keyboards = self._answer(_ALL).split()
        if UNICODE_KEYBOARD not in keyboards:
            return
        before, self._remedy = self._answer(_CURRENT), _ENABLE
        self._is_ours = self._select()
        if self._is_ours:
            self._before = before if before in keyboards else ""
        else:
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
        """Selects the keyboard from before. Warns if ADBKeyBoard stays selected."""
        before, self._before = self._before, None
        if before is None or before == UNICODE_KEYBOARD:
            return
        try:
            # Sent once: closing does not wait for a phone that is gone. The setting decides, not the words of `ime`.
            with suppress(RefusedError):
                self._link.do(("ime", "set", before) if before else ("ime", "reset"))
            stays = self._is_selected()
        except ActionInDoubtError:
            stays = True
        if stays:
            self._warn_that_it_stays()

    def leave(self) -> None:
        """Restores nothing, because the phone is gone."""
        if self._before is not None and self._before != UNICODE_KEYBOARD:
            self._warn_that_it_stays()
        self._before = None

    def _select(self) -> bool:
        # Selecting a keyboard is idempotent, so it may be repeated if the connection breaks.
        self._link.query(("ime", "enable", UNICODE_KEYBOARD), ("ime", "set", UNICODE_KEYBOARD))
        return self._is_selected()

    def _is_selected(self) -> bool:
        return self._answer(_CURRENT) == UNICODE_KEYBOARD

    def _answer(self, words: Words) -> str:
        """The output of a question; empty if the phone refuses it."""
        try:
            return self._link.ask(words).decode(errors="replace").strip()
        except RefusedError:
            return ""

    def _warn_of_ascii(self) -> None:
        _LOG.warning(
            "%s has ADBKeyBoard and does not select it, so `input text` types: ASCII only, and a step with other text "
            "fails. To type any text, %s",
            self._link.serial,
            _ENABLE,
        )

    def _warn_that_it_stays(self) -> None:
        _LOG.warning(
            "ADBKeyBoard may still be the keyboard of %s; choose another one on the phone, or run "
            "`adb -s %s shell ime reset`",
            self._link.serial,
            self._link.serial,
        )
