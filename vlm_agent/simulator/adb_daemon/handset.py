"""The phone's state apart from its screen: power, lock, keyboards, files, settings, clock, and a record of commands."""

import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from vlm_agent.devices.android import UNICODE_KEYBOARD
from vlm_agent.episodes import Action
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon.files import Files
from vlm_agent.simulator.adb_daemon.record import Record

USUAL_KEYBOARD = "com.android.inputmethod.latin/.LatinIME"


USUAL_SETTINGS = {
    ("global", "animator_duration_scale"): "1.0",
    ("global", "transition_animation_scale"): "1.0",
    ("global", "window_animation_scale"): "1.0",
    ("secure", "show_ime_with_hard_keyboard"): "0",
    ("system", "accelerometer_rotation"): "0",
    ("system", "screen_brightness"): "102",
    ("system", "screen_off_timeout"): "60000",
    ("system", "user_rotation"): "0",
}
"""(namespace, key) → value, of a fresh phone."""


def _bytes_of(item: object, parts: Iterable[str]) -> int:
    return sys.getsizeof(item) + sum(map(sys.getsizeof, parts))


@dataclass(frozen=True)
class Finger:
    """A finger put down by `input motionevent`. `touch_yx` in screen fractions, `seconds`: of the phone's clock."""

    touch_yx: tuple[float, float]
    seconds: float


@dataclass
class Handset:
    """A simulated phone and its surroundings. Hold `lock` to access it while it is being served.

    `commands`: the words of every command that the shell ran. `actions`: every action. `listeners` are called with
    each action that has an effect, before it; they must not wait. `slept`: the seconds by which `sleep` has advanced
    the phone's clock. `clipboard`: the text copied last.
    """

    phone: SimulatedPhone
    keyboards: tuple[str, ...] = (USUAL_KEYBOARD, UNICODE_KEYBOARD)
    is_awake: bool = True
    is_locked: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)
    files: Files = field(default_factory=Files)
    commands: Record[tuple[str, ...]] = field(default_factory=lambda: Record(lambda words: _bytes_of(words, words)))
    actions: Record[Action] = field(default_factory=lambda: Record(lambda one: _bytes_of(one, (one.text,))))
    keyboard: str = USUAL_KEYBOARD
    listeners: list[Callable[[Action], None]] = field(default_factory=list)
    enabled: set[str] = field(default_factory=lambda: {USUAL_KEYBOARD})
    settings: dict[tuple[str, str], str] = field(default_factory=lambda: dict(USUAL_SETTINGS))
    clipboard: str = ""
    finger: Finger | None = None
    slept: float = 0.0
    physical_size: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.physical_size = self.phone.size

    def now(self) -> float:
        """The phone's clock, in seconds since the epoch."""
        return time.time() + self.slept

    @property
    def is_usable(self) -> bool:
        """Whether the phone reacts to touches and keys."""
        return self.is_awake and not self.is_locked

    @property
    def field_text(self) -> str | None:
        """The content of the text field with the focus, None without one."""
        phone = self.phone
        return None if phone.focus is None else phone.app(phone.front).fields.get(phone.focus, "")

    def perform(self, action: Action) -> None:
        """Performs and records an action; a phone that is off or locked only records it."""
        self.actions.append(action)
        if self.is_usable:
            for listener in tuple(self.listeners):
                listener(action)
            self.phone.perform(action)

    def press_key(self, press: Callable[[], object]) -> None:
        """Presses a key that is not an Action; `press` is its effect. A phone that is off or locked ignores the key."""
        if self.is_usable:
            press()
            self.phone.changed()
