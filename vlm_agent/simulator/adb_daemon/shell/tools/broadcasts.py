"""`am broadcast`: the broadcasts of ADBKeyBoard (https://github.com/senzhk/ADBKeyBoard)."""

import base64
from collections.abc import Callable

from vlm_agent.devices.android import KEYBOARD_BROADCAST, UNICODE_KEYBOARD
from vlm_agent.episodes import Action
from vlm_agent.simulator.adb_daemon.handset import Handset
from vlm_agent.simulator.adb_daemon.shell.session import Result, ToolError, output
from vlm_agent.simulator.adb_daemon.shell.tools import keys
from vlm_agent.simulator.adb_daemon.shell.tools.intents import Intent

_EDITOR_ACTIONS = ("2", "3", "4")
"""Go, search and send, which every field of this phone treats as enter."""


def broadcast(handset: Handset, intent: Intent) -> Result:
    """A keyboard that is not selected ignores its broadcasts, but Android reports success.

    Raises ToolError for a broadcast that nothing on this phone receives.
    """
    receive = _RECEIVERS.get(intent.action)
    is_for_keyboard = intent.package in ("", UNICODE_KEYBOARD.partition("/")[0])
    if receive is None or not is_for_keyboard or UNICODE_KEYBOARD not in handset.keyboards:
        raise ToolError(f"Error: nothing on the simulated phone receives {intent}")
    if handset.keyboard == UNICODE_KEYBOARD:
        receive(handset, intent)
    return output(f"Broadcasting: {intent}\nBroadcast completed: result=0")


def _extra(intent: Intent, option: str, key: str) -> str:
    if (option, key) not in intent.extras:
        raise ToolError(f"Error: {intent.action} without {option} {key}")
    return intent.extras[option, key]


def _type(handset: Handset, text: str) -> None:
    if text:
        handset.perform(Action.type_text(text))


def _input_base64(handset: Handset, intent: Intent) -> None:
    try:
        text = base64.b64decode(_extra(intent, "--es", "msg"), validate=True).decode()
    except ValueError as error:
        raise ToolError(f"Error: {error}") from None
    _type(handset, text)


def _input_characters(handset: Handset, intent: Intent) -> None:
    codes = _extra(intent, "--eia", "chars").split(",")
    try:
        text = "".join(map(chr, map(int, codes)))
        text.encode()
    except (ValueError, OverflowError) as error:
        raise ToolError(f"Error: {error}") from None
    _type(handset, text)


def _editor_action(handset: Handset, intent: Intent) -> None:
    code = _extra(intent, "--ei", "code")
    if code not in _EDITOR_ACTIONS:
        raise ToolError(f"Error: no field of the simulated phone has the editor action {code}")
    handset.perform(Action.press("enter"))


_RECEIVERS: dict[str, Callable[[Handset, Intent], None]] = {
    KEYBOARD_BROADCAST: _input_base64,
    "ADB_CLEAR_TEXT": lambda handset, intent: keys.erase_all(handset),
    "ADB_EDITOR_CODE": _editor_action,
    "ADB_INPUT_CHARS": _input_characters,
    "ADB_INPUT_CODE": lambda handset, intent: keys.press(handset, _extra(intent, "--ei", "code")),
    "ADB_INPUT_TEXT": lambda handset, intent: _type(handset, _extra(intent, "--es", "msg")),
}
