"""A real phone, or anything else that speaks ADB, as a Device.

with AdbPhone("127.0.0.1:5600") as phone:
    screen = phone.screenshot()
    phone.perform(Action.tap(0.5, 0.5))

Needs Android 7 or later with USB debugging on. Where ADBKeyBoard is installed, it is the phone's keyboard until
`close()`, and then the former one again: it types every text, but screens with a keyboard show only its thin bar.
"""

import io
import re
import time

import numpy as np
from PIL import Image

from vlm_agent.devices.adb_elements import COMMANDS, read_elements
from vlm_agent.devices.adb_link import AdbLink
from vlm_agent.devices.adb_words import UNICODE_KEYBOARD, press, swipe, tap, type_by_broadcast, type_by_keys
from vlm_agent.devices.errors import DeviceError, DeviceLostError, LockedError, RefusedError, ScreenOffError
from vlm_agent.episodes import Action, ActionKind, UiElement

_PNG = b"\x89PNG"
_WAKEFULNESS = re.compile(r"mWakefulness=(\w+)")
_KEYGUARD = re.compile(r"KeyguardStateMonitor\s+mIsShowing=true")
_FOCUS = re.compile(r"mCurrentFocus=Window\{\S+ \S+ (\S+)\}")


class AdbPhone:
    """`serial` as `adb devices` prints it, or host:port; None takes the only phone there is.

    A screen is settled when it is the same for `settle_interval` seconds, and taken as it is after `settle_limit`. A
    phone that goes away is waited for, up to `patience` seconds. Raises a DeviceError that says what is wrong.
    """

    def __init__(
        self,
        serial: str | None = None,
        settle_interval: float = 0.2,
        settle_limit: float = 3.0,
        patience: float = 30.0,
    ):
        self._interval, self._limit = settle_interval, settle_limit
        self._link = AdbLink(serial, patience)
        self._size: tuple[int, int] | None = None
        self.activity = ""
        self.status: ActionKind | None = None
        self._types_any_text = False
        self._keyboard_before: str | None = None
        try:
            self._check_screen()
            self._take_keyboard()
        except DeviceError:
            self._link.close()
            raise

    def __enter__(self) -> "AdbPhone":
        return self

    def __exit__(self, kind, error, trace) -> None:
        if isinstance(error, DeviceLostError):
            self._keyboard_before = None  # waiting for the phone again would only hide what has happened
        self.close()

    def close(self) -> None:
        """Gives the phone its keyboard back."""
        try:
            if self._keyboard_before is not None:
                self._link.ask(("ime", "set", self._keyboard_before))
        finally:
            self._keyboard_before = None
            self._link.close()

    @property
    def serial(self) -> str:
        return self._link.serial

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the last screenshot, in pixels: a phone that is turned has another one."""
        return self.screenshot().shape[:2] if self._size is None else self._size

    def screenshot(self) -> np.ndarray:
        """uint8 (height, width, 3), RGB, of the settled screen; `activity` is then what is in front on it.

        Raises ScreenOffError and LockedError; DeviceLostError when the phone goes away and stays away.
        """
        self._check_screen()
        with Image.open(io.BytesIO(self._settled())) as image:
            pixels = np.array(image.convert("RGB"))
        self._size = pixels.shape[:2]
        return pixels

    def elements(self) -> tuple[UiElement, ...] | None:
        """What `uiautomator dump` tells of the screen, which takes a second or two; None where it fails, as it does on
        screens that never rest."""
        try:
            dump = self._link.ask(*COMMANDS)
        except RefusedError:
            return None
        return read_elements(dump.decode(errors="replace"), self.size)

    def perform(self, action: Action) -> None:
        """Do one action, at most once; a status action is only noted (`status`).

        Raises ActionInDoubtError when the connection is cut during it; UntypableTextError, before anything is typed,
        for text that needs ADBKeyBoard where it is not; RefusedError when the phone does not take it.
        """
        if action.is_status:
            self.status = action.kind
        elif action.kind is ActionKind.TYPE:
            self._type(action.text)
        elif action.is_tap:
            self._link.do(tap(*self._pixel(action.touch_yx)))
        elif action.is_swipe:
            self._link.do(swipe(self._pixel(action.touch_yx), self._pixel(action.lift_yx)))
        else:
            self._link.do(press(action.name))

    def _pixel(self, point_yx: tuple[float, float]) -> tuple[int, int]:
        return tuple(min(int(part * side), side - 1) for part, side in zip(point_yx, self.size, strict=True))

    def _type(self, text: str) -> None:
        commands = type_by_broadcast(text) if self._types_any_text else type_by_keys(text)
        if commands:
            said = self._link.do(*commands)
            if self._types_any_text and b"Broadcast completed" not in said:
                raise RefusedError(f"{self.serial} did not take the text: {said.decode(errors='replace').strip()}")

    def _take_keyboard(self) -> None:
        """Makes ADBKeyBoard the keyboard where it is installed."""
        keyboards = self._link.ask(("ime", "list", "-s", "-a")).decode().split()
        if UNICODE_KEYBOARD not in keyboards:
            return
        before = self._link.ask(("settings", "get", "secure", "default_input_method")).decode().strip()
        # Choosing a keyboard twice is choosing it once, so it may be asked again after a cut.
        self._link.ask(("ime", "enable", UNICODE_KEYBOARD), ("ime", "set", UNICODE_KEYBOARD))
        self._types_any_text = True
        self._keyboard_before = before if before in keyboards else None

    def _check_screen(self) -> None:
        state = self._link.ask(("dumpsys", "power"), ("dumpsys", "window")).decode(errors="replace")
        wakefulness = _WAKEFULNESS.search(state)
        if wakefulness is not None and wakefulness[1] != "Awake":
            raise ScreenOffError(
                f"the screen of {self.serial} is off ({wakefulness[1]}); turn it on, and have it stay on while it is "
                "charging (Settings, developer options)"
            )
        if _KEYGUARD.search(state):
            raise LockedError(
                f"{self.serial} is locked; unlock it, and turn off its screen lock for as long as it is used"
            )
        focus = _FOCUS.search(state)
        self.activity = "" if focus is None else focus[1]

    def _settled(self) -> bytes:
        """The PNG of a screen that has stopped changing, or of what it is at the limit."""
        end = time.monotonic() + self._limit
        before = self._captured()
        while True:
            time.sleep(self._interval)
            now = self._captured()
            if now == before or time.monotonic() >= end:
                return now
            before = now

    def _captured(self) -> bytes:
        picture = self._link.ask(("screencap", "-p"))
        if not picture.startswith(_PNG):
            raise DeviceError(f"{self.serial} gave no picture of its screen: {picture[:200]!r}")
        return picture
