"""The phone's state apart from its screen: power, lock, keyboards, files, and a record of commands and actions."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from vlm_agent.devices.adb_daemon.files import Files
from vlm_agent.devices.android import UNICODE_KEYBOARD
from vlm_agent.devices.simulated_phone import SimulatedPhone
from vlm_agent.episodes import Action

USUAL_KEYBOARD = "com.android.inputmethod.latin/.LatinIME"

MAX_RECORDS = 100_000
"""The maximum number of records of each kind; the oldest are dropped, so a long-running phone needs bounded memory."""


@dataclass
class Handset:
    """A simulated phone and its surroundings. Hold `lock` to access it while it is being served.

    `commands`: the words of every command that the shell ran. `actions`: every action. `listeners` are called with
    each action that has an effect, before it; they must not wait.
    """

    phone: SimulatedPhone
    keyboards: tuple[str, ...] = (USUAL_KEYBOARD, UNICODE_KEYBOARD)
    is_awake: bool = True
    is_locked: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)
    files: Files = field(default_factory=Files)
    commands: deque[tuple[str, ...]] = field(default_factory=lambda: deque(maxlen=MAX_RECORDS))
    actions: deque[Action] = field(default_factory=lambda: deque(maxlen=MAX_RECORDS))
    keyboard: str = USUAL_KEYBOARD
    listeners: list[Callable[[Action], None]] = field(default_factory=list)
    enabled: set[str] = field(default_factory=lambda: {USUAL_KEYBOARD})

    def perform(self, action: Action) -> None:
        """Performs and records an action; a phone that is off or locked only records it."""
        self.actions.append(action)
        if self.is_awake and not self.is_locked:
            for listener in tuple(self.listeners):
                listener(action)
            self.phone.perform(action)

    def press_key(self, press: Callable[[], object]) -> None:
        """Presses a key that is not an Action; `press` is its effect. A phone that is off or locked ignores the key."""
        if self.is_awake and not self.is_locked:
            press()
            self.phone.changed()
