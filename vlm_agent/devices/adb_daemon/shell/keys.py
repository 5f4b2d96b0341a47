"""The keys of `input keyevent`, by number and by name (Android, `KeyEvent`)."""

from collections.abc import Callable

from vlm_agent.devices.adb_daemon.handset import Handset
from vlm_agent.episodes import Action

Key = Callable[[Handset], None]


def _wake(handset: Handset) -> None:
    handset.is_awake = True


def _sleep(handset: Handset) -> None:
    handset.is_awake = False


def _power(handset: Handset) -> None:
    handset.is_awake = not handset.is_awake


def _button(name: str) -> Key:
    return lambda handset: handset.perform(Action.press(name))


_KEYS: dict[tuple[str, str], Key] = {
    ("3", "HOME"): _button("home"),
    ("4", "BACK"): _button("back"),
    ("66", "ENTER"): _button("enter"),
    ("67", "DEL"): lambda handset: handset.press_key(handset.phone.erase),
    ("187", "APP_SWITCH"): lambda handset: handset.perform(Action.recents()),
    ("26", "POWER"): _power,
    ("223", "SLEEP"): _sleep,
    ("224", "WAKEUP"): _wake,
}

KEYS: dict[str, Key] = {name: key for names, key in _KEYS.items() for name in names}
