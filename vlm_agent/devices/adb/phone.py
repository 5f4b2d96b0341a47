"""A real phone, or any other device that supports ADB.

with AdbPhone("127.0.0.1:5600") as phone:
    screen = phone.screenshot()
    phone.perform(Action.tap(0.5, 0.5))

Requires Android 7 or later with USB debugging. If ADBKeyBoard is installed and the phone selects it, it is the phone's
keyboard until `close()` restores the previous one: it types any text, but screens with a keyboard show only its thin
bar.
"""

import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

import numpy as np

from vlm_agent.devices.adb.apps import (
    HOME_COMMAND,
    LIST_COMMAND,
    PACKAGES_COMMAND,
    STARTED,
    find_component,
    read_activity,
    read_components,
    read_launcher,
    read_packages,
    start_command,
)
from vlm_agent.devices.adb.display import Display, read_picture
from vlm_agent.devices.adb.elements import COMMANDS, read_elements
from vlm_agent.devices.adb.keyboard import Keyboard
from vlm_agent.devices.adb.link import AdbLink, ShellResult, Success, Words
from vlm_agent.devices.errors import DeviceError, LockedError, RefusedError
from vlm_agent.episodes import Action, ActionKind, UiElement

WAIT_SECONDS = 1.0
"""The duration of a WAIT action; the next screenshot also waits until the screen is stable."""

SWIPE_MILLISECONDS = 300
"""Fast enough to be a swipe for Android, slow enough not to fling a list to its end."""

LONG_PRESS_MILLISECONDS = 1000
"""Android's long-press timeout is 400 to 500 ms by default; accessibility settings raise it to at most 1,500."""

_WAKEFULNESS = re.compile(r"mWakefulness=(\w+)")
_KEYGUARD = re.compile(r"KeyguardStateMonitor\s+mIsShowing=true")


class AdbPhone:
    """`serial` as `adb devices` prints it, or host:port; None selects the only connected phone.

    A screenshot is returned once two captures `settle_interval` seconds apart are equal, or after `settle_limit`
    seconds. A lost connection raises an error only if it is not restored within `patience` seconds.
    `selects_keyboard`: False leaves the phone's keyboard as it is, for a person who types. Raises a DeviceError that
    explains the problem.
    """

    def __init__(
        self,
        serial: str | None = None,
        settle_interval: float = 0.2,
        settle_limit: float = 3.0,
        patience: float = 30.0,
        selects_keyboard: bool = True,
    ) -> None:
        self._interval, self._limit = settle_interval, settle_limit
        self._link = AdbLink(serial, patience)
        self._size: tuple[int, int] | None = None
        self.activity = ""
        self.status: ActionKind | None = None
        self.answer: str | None = None
        self._keyboard = Keyboard(self._link)
        try:
            self._check_screen()
            self._display = Display(self._link)
            if selects_keyboard:
                self._keyboard.select()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "AdbPhone":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Restores the phone's previous keyboard and disconnects."""
        try:
            self._keyboard.restore()
        finally:
            self._link.close()

    @property
    def serial(self) -> str:
        return self._link.serial

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the last screenshot, in pixels; rotating the phone changes it."""
        return self.screenshot().shape[:2] if self._size is None else self._size

    @property
    def logical_size(self) -> tuple[int, int]:
        """(height, width) of the screen in the units of taps and elements, turned as the last screenshot is."""
        return self._display.logical_size(self.size)

    def screenshot(self) -> np.ndarray:
        """The screen once it is stable: uint8 (height, width, 3), RGB. Also updates `activity` and `size`.

        Raises LockedError, DeviceLostError if the connection is lost and not restored, and
        DeviceError if the phone returns no picture of this screen.
        """
        self._check_screen()
        self._display.refresh()
        end = time.monotonic() + self._limit
        while True:
            before, picture = self.activity, self._stable_capture()
            self._check_screen()
            # An app that opens meanwhile is judged by its own name, not by that of the app before.
            if self.activity == before or time.monotonic() >= end:
                break
        try:
            pixels = read_picture(picture)
        except (OSError, SyntaxError, ValueError) as error:
            raise DeviceError(f"the picture of {self.serial} cannot be read: {error}") from error
        self._size = pixels.shape[:2]
        return pixels

    def elements(self) -> tuple[UiElement, ...] | None:
        """The elements that `uiautomator dump` reports; None if it fails or hangs, as on screens that keep changing.

        Takes one or two seconds.
        """
        dump = self.hierarchy()
        return None if dump is None else read_elements(dump, self.logical_size)

    def hierarchy(self) -> str | None:
        """What `uiautomator dump` reports, as XML; None if it fails or hangs."""
        try:
            return self._link.ask(*COMMANDS, may_hang=True).decode(errors="replace")
        except RefusedError:
            return None

    def ask(self, *words: str) -> str:
        """The output of a command without side effects. Raises RefusedError if it fails."""
        return self._link.ask(words).decode(errors="replace")

    def change(self, *words: str) -> None:
        """Runs a command with side effects once; see `AdbLink.do`."""
        self._link.do(words, success=Success(lines=re.compile("")))  # whatever it prints: its status decides

    def query(self, *words: str) -> ShellResult:
        """The output and exit status of a command that may fail. Raises RefusedError if it hangs."""
        return self._link.query(words, may_hang=True)

    def stream(self, *words: str) -> AbstractContextManager[Iterator[bytes]]:
        """The output of a command that runs until the block ends; see `AdbLink.stream`."""
        return self._link.stream(words)

    def perform(self, action: Action) -> None:
        """Perform one action, at most once; see `Device.perform`.

        Raises ActionInDoubtError if the connection breaks during the action; UntypableTextError, before any typing, for
        text that is too long or that needs ADBKeyBoard when it is not installed; UnknownAppError, before opening an
        app, for a name that does not identify one; RefusedError if the phone reports a failure.
        """
        if action.is_status:
            self.status = action.kind
        elif action.kind is ActionKind.ANSWER:
            self.answer = action.text
        elif action.kind is ActionKind.WAIT:
            time.sleep(WAIT_SECONDS)
        elif action.kind is ActionKind.TYPE:
            self._keyboard.type(action.text)
        elif action.kind is ActionKind.OPEN_APP:
            component = find_component(action.text, read_components(self.ask(*LIST_COMMAND)))
            self._link.do(start_command(component), success=STARTED)
        else:
            self._link.do(self._command(action))

    def _command(self, action: Action) -> Words:
        """A gesture or a key as a command of the phone's shell, with x before y. A long press is a swipe that stays."""
        if (key := action.kind.facts.key) is not None:
            return ("input", "keyevent", str(key[0]))
        touch = self._pixel(action.touch_yx)
        if action.is_tap:
            return ("input", "tap", *map(str, reversed(touch)))
        lift = self._pixel(action.lift_yx) if action.is_swipe else touch
        duration = SWIPE_MILLISECONDS if action.is_swipe else LONG_PRESS_MILLISECONDS
        return ("input", "swipe", *map(str, (*reversed(touch), *reversed(lift), duration)))

    def packages(self) -> tuple[str, ...]:
        return read_packages(self.ask(*PACKAGES_COMMAND))

    def launcher(self) -> str | None:
        """The package of the phone's home screen; None if the user has not chosen one of several."""
        return read_launcher(self._link.text(HOME_COMMAND))

    def _pixel(self, point_yx: tuple[float, float]) -> tuple[int, int]:
        """The pixel (y, x) at a point (y, x) in screen fractions, limited to the screen."""
        (y, x), (height, width) = point_yx, self.logical_size
        return min(int(y * height), height - 1), min(int(x * width), width - 1)

    def _check_screen(self) -> None:
        state = self._link.ask(("dumpsys", "power"), ("dumpsys", "window")).decode(errors="replace")
        wakefulness = _WAKEFULNESS.search(state)
        if wakefulness is not None and wakefulness[1] != "Awake":
            raise LockedError(
                f"the screen of {self.serial} is off ({wakefulness[1]}); turn it on, and keep it on while charging "
                "(Settings, developer options)"
            )
        if _KEYGUARD.search(state):
            raise LockedError(
                f"{self.serial} is locked; unlock it, and turn off its screen lock while an agent uses it"
            )
        self.activity = read_activity(state)

    def _stable_capture(self) -> bytes:
        """PNG of the screen once it is stable, or at the time limit."""
        end = time.monotonic() + self._limit
        before = self._display.capture()
        while True:
            time.sleep(self._interval)
            now = self._display.capture()
            if now == before or time.monotonic() >= end:
                return now
            before = now
