"""The keys of `input keyevent` and `input keycombination`, by number and by name (Android, `KeyEvent`).

Only keys with an effect on this phone are listed; every other key is refused.
"""

from collections.abc import Callable

from vlm_agent.episodes import Action
from vlm_agent.simulator.adb_daemon.handset import Handset
from vlm_agent.simulator.adb_daemon.shell.session import ToolError

Key = Callable[[Handset], None]


def erase_all(handset: Handset) -> None:
    """Erases the text of the field with the focus, one key press for each character."""
    for _ in range(len(handset.field_text or "")):
        handset.press_key(handset.phone.erase)


def paste(handset: Handset) -> None:
    """Raises ToolError if nothing has been copied."""
    if not handset.clipboard:
        raise ToolError("Error: the clipboard of the simulated phone is empty")
    handset.perform(Action.type_text(handset.clipboard))


def _select(is_selected: bool) -> Key:
    """Selects the text of the field with the focus, or puts the cursor behind it."""

    def press(handset: Handset) -> None:
        if handset.phone.focus is not None:
            handset.press_key(lambda: setattr(handset.phone, "replacing", is_selected))

    return press


def _copy(handset: Handset) -> None:
    """Copies the selected text."""
    if handset.is_usable and handset.phone.replacing and handset.field_text:
        handset.clipboard = handset.field_text


def _cut(handset: Handset) -> None:
    _copy(handset)
    if handset.phone.replacing:
        erase_all(handset)


def _turn(is_awake: bool) -> Key:
    return lambda handset: setattr(handset, "is_awake", is_awake)


def _performs(action: Action) -> Key:
    return lambda handset: handset.perform(action)


def _app(name: str) -> Key:
    """Opens an app if it is installed. Raises ToolError if it is not."""

    def press(handset: Handset) -> None:
        if name not in handset.phone.installed:
            raise ToolError(f"Error: the simulated phone has no app for this key: {name} is not installed")
        handset.perform(Action.open_app(name))

    return press


_LETTERS = {
    **{(str(7 + digit), str(digit)): str(digit) for digit in range(10)},
    **{(str(144 + digit), f"NUMPAD_{digit}"): str(digit) for digit in range(10)},
    **{(str(29 + index), chr(65 + index)): chr(97 + index) for index in range(26)},
    ("55", "COMMA"): ",",
    ("56", "PERIOD"): ".",
    ("62", "SPACE"): " ",
    ("68", "GRAVE"): "`",
    ("69", "MINUS"): "-",
    ("70", "EQUALS"): "=",
    ("71", "LEFT_BRACKET"): "[",
    ("72", "RIGHT_BRACKET"): "]",
    ("73", "BACKSLASH"): "\\",
    ("74", "SEMICOLON"): ";",
    ("75", "APOSTROPHE"): "'",
    ("76", "SLASH"): "/",
    ("77", "AT"): "@",
    ("81", "PLUS"): "+",
    ("17", "STAR"): "*",
    ("18", "POUND"): "#",
}

_KEYS: dict[tuple[str, str], Key] = {
    ("3", "HOME"): _performs(Action.press("home")),
    ("4", "BACK"): _performs(Action.press("back")),
    ("111", "ESCAPE"): _performs(Action.press("back")),  # Android, `Generic.kcm`: falls back to BACK
    ("66", "ENTER"): _performs(Action.press("enter")),
    ("160", "NUMPAD_ENTER"): _performs(Action.press("enter")),
    ("67", "DEL"): lambda handset: handset.press_key(handset.phone.erase),
    ("123", "MOVE_END"): _select(False),
    ("277", "CUT"): _cut,
    ("278", "COPY"): _copy,
    ("279", "PASTE"): paste,
    ("187", "APP_SWITCH"): _performs(Action.recents()),
    ("26", "POWER"): lambda handset: setattr(handset, "is_awake", not handset.is_awake),
    ("223", "SLEEP"): _turn(False),
    ("276", "SOFT_SLEEP"): _turn(False),
    ("224", "WAKEUP"): _turn(True),
    ("64", "EXPLORER"): _app("Browser"),
    ("65", "ENVELOPE"): _app("Mail"),
    ("207", "CONTACTS"): _app("Contacts"),
    ("208", "CALENDAR"): _app("Calendar"),
    ("209", "MUSIC"): _app("Music"),
    ("210", "CALCULATOR"): _app("Calculator"),
    **{names: _performs(Action.type_text(letter)) for names, letter in _LETTERS.items()},
}

_CODES = {name: code for code, name in _KEYS} | {"CTRL_LEFT": "113", "CTRL_RIGHT": "114"}
_EFFECTS = {code: key for (code, _), key in _KEYS.items()}

_CONTROL = ("113", "114")
_WITH_CONTROL: dict[str, Key] = {"29": _select(True), "31": _copy, "50": paste, "52": _cut}
"""The effect of A, C, V and X together with control."""

_REPEATED = {"67", *(code for code, _ in _LETTERS)}
"""Keys that repeat while they are held."""


def _code(name: str) -> str:
    """The number of a key, which `adb shell input` takes as a number or as a name. A digit is a number."""
    plain = name.removeprefix("KEYCODE_")
    return name if name.isdecimal() else _CODES.get(plain, name)


def press(handset: Handset, name: str, is_long: bool = False) -> None:
    """Presses a key; `is_long`: holds it, so that it is repeated once. Raises ToolError for a key without effect."""
    code = _code(name)
    if code not in _EFFECTS or (is_long and code not in _REPEATED):
        raise ToolError(f"Error: the simulated phone has no key {name}{' to hold' if is_long else ''}")
    for _ in range(1 + is_long):
        _EFFECTS[code](handset)


def press_together(handset: Handset, names: list[str]) -> None:
    """Presses keys at the same time. Raises ToolError for keys without an effect together."""
    codes = [_code(name) for name in names]
    if len(codes) != 2 or codes[0] not in _CONTROL or codes[1] not in _WITH_CONTROL:
        raise ToolError(f"Error: the simulated phone has no key combination {' '.join(names)}")
    _WITH_CONTROL[codes[1]](handset)
