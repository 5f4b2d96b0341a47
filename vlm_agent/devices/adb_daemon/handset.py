"""What the daemon needs to know about the phone beyond its screen: power, lock, keyboards, files, and a record."""

import threading
from collections import deque
from dataclasses import dataclass, field

from vlm_agent.devices.adb_daemon.files import Files
from vlm_agent.devices.simulated_phone import SimulatedPhone
from vlm_agent.episodes import Action

USUAL_KEYBOARD = "com.android.inputmethod.latin/.LatinIME"
UNICODE_KEYBOARD = "com.android.adbkeyboard/.AdbIME"

MOST_RECORDS = 100_000
"""So that a phone which is served for weeks does not fill the memory; the oldest go first."""


@dataclass
class Handset:
    """A simulated phone and what surrounds it. Hold `lock` to touch it while it is being served.

    `commands` are the words of every command that its shell has run, `performed` every action that it has done.
    """

    phone: SimulatedPhone
    keyboards: tuple[str, ...] = (USUAL_KEYBOARD, UNICODE_KEYBOARD)
    is_awake: bool = True
    is_locked: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)
    files: Files = field(default_factory=Files)
    commands: deque[tuple[str, ...]] = field(default_factory=lambda: deque(maxlen=MOST_RECORDS))
    performed: deque[Action] = field(default_factory=lambda: deque(maxlen=MOST_RECORDS))
    keyboard: str = USUAL_KEYBOARD
    enabled: set[str] = field(default_factory=lambda: {USUAL_KEYBOARD})

    def perform(self, action: Action) -> None:
        """A dark or locked phone takes no notice."""
        self.performed.append(action)
        if self.is_awake and not self.is_locked:
            self.phone.perform(action)

    def press_key(self, press) -> None:
        """A key that is no Action: `press` is what the phone does."""
        if self.is_awake and not self.is_locked:
            press()
            self.phone.changed()
