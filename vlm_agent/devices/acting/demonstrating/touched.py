"""A real phone that a person touches, watched over ADB.

with TouchRecorder("SERIAL", ready) as recorder:
    while not stopped: recorder.tick()
    observed = recorder.stop()

The fingers come from `getevent -lt`, on a thread; the screens from `uiautomator dump` between two touches, which takes
a second or two. A touch belongs to the last screen that was read completely after the touch before it; a touch that
comes earlier has no screen, and becomes a point. `ready` is called when the screen of the next touch has been read.
"""

import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from vlm_agent.devices.acting.demonstrating.observed import (
    Observed,
    ObservedAction,
    ObservedScreen,
    Recording,
    TypingField,
    Watching,
)
from vlm_agent.devices.adb.elements import read_elements, read_field
from vlm_agent.devices.adb.fingers import HARDWARE_KEYS, Fingers, Gesture, LeftOut, action_of, read_rotation
from vlm_agent.devices.adb.getevent import Lines, TouchEvent, read_event, read_panels
from vlm_agent.devices.adb.phone import AdbPhone
from vlm_agent.devices.errors import DeviceError, DeviceLostError, LockedError, NoDeviceError
from vlm_agent.episodes import Action

DRAWN = "gestures that return to where they began"
UNKNOWN_ROTATION = "touches on a screen that is turned in an unknown way"

REFRESH_SECONDS = 3.0
"""A screen is read again after this time without a touch: it may have changed by itself."""

_KEYBOARD = re.compile(r"mInputShown=true")


class TouchRecorder:
    """`serial` as in `AdbPhone`. `keeps_pixels`: with the pixels of the screens.

    Raises DeviceError if the phone has no touch screen.
    """

    def __init__(
        self, serial: str | None, ready: Callable[[int], None] = lambda _: None, keeps_pixels: bool = False
    ) -> None:
        self._serial, self._ready, self._keeps_pixels = serial, ready, keeps_pixels
        self._events: queue.SimpleQueue[TouchEvent | DeviceLostError] = queue.SimpleQueue()
        self._observed = Observed()
        self._screen: ObservedScreen | None = None
        self._rotation: int | None = 0
        self._read_at = float("-inf")
        self._touch_screen: ObservedScreen | None = None
        self._touch_rotation: int | None = 0

    def __enter__(self) -> "TouchRecorder":
        with ExitStack() as stack:
            self._phone = stack.enter_context(AdbPhone(self._serial, selects_keyboard=False))
            panels = read_panels(self._phone.ask("getevent", "-lp"))
            if not panels:
                raise DeviceError(f"{self._phone.serial} lists no touch screen (`adb shell getevent -lp`)")
            self._fingers = {path: Fingers(panel) for path, panel in panels.items()}
            pieces = stack.enter_context(self._phone.stream("getevent", "-lt"))
            threading.Thread(target=self._read_events, args=(pieces,), daemon=True).start()
            self._open = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def tick(self) -> None:
        """Takes the events that have come, and reads the screen if it may have changed.

        Raises DeviceLostError if the phone is gone.
        """
        self._take_events()
        is_touched = any(fingers.is_down for fingers in self._fingers.values())
        if not is_touched and (self._screen is None or time.monotonic() - self._read_at > REFRESH_SECONDS):
            self._read_screen()

    def stop(self) -> Observed:
        """The session, with the screen as it is now, if that can be read. To be called once, at the end.

        Ctrl-C ends the reading of the screen. A phone that is unplugged meanwhile costs the last screen alone.
        """
        self._take_events()
        for fingers in self._fingers.values():
            if (left := fingers.end()) is not None:
                self._observed.leave_out(left.reason)
        if self._screen is None:
            with suppress(KeyboardInterrupt, DeviceError):
                self._read_screen()
        self._observed.last = self._screen
        return self._observed

    def _read_events(self, pieces: Iterator[bytes]) -> None:
        lines = Lines()
        try:
            for piece in pieces:
                for line in lines.take(piece):
                    if (event := read_event(line)) is not None:
                        self._events.put(event)
        except DeviceLostError as error:
            self._events.put(error)

    def _take_events(self) -> None:
        while True:
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                return
            if isinstance(event, DeviceLostError):
                raise event
            self._take(event)

    def _take(self, event: TouchEvent) -> None:
        if event.type == "EV_KEY" and event.value == 1 and event.code in HARDWARE_KEYS:
            self._add(HARDWARE_KEYS[event.code], self._screen)
            return
        fingers = self._fingers.get(event.path)
        if fingers is None:
            return
        was_down = fingers.is_down
        found = fingers.take(event)
        if fingers.is_down and (not was_down or isinstance(found, LeftOut)):
            self._touch_screen, self._touch_rotation = self._screen, self._rotation
            self._screen = None
        if isinstance(found, LeftOut):
            self._observed.leave_out(found.reason)
        elif found is not None:
            self._add_gesture(found)

    def _add_gesture(self, gesture: Gesture) -> None:
        if self._touch_rotation is None:
            self._observed.leave_out(UNKNOWN_ROTATION)
        elif (action := action_of(gesture, self._touch_rotation)) is None:
            self._observed.leave_out(DRAWN)
        else:
            self._add(action, self._touch_screen)

    def _add(self, action: Action, screen: ObservedScreen | None) -> None:
        self._observed.actions.append(ObservedAction(action, screen))
        self._screen = None

    def _read_screen(self) -> None:
        """Reads the screen, unless it is touched meanwhile. A screen that is off or locked is not read, nor, after the
        first one, a screen that the phone gives no picture of, as some windows forbid."""
        is_new = self._screen is None
        try:
            pixels = self._phone.screenshot()  # waits until it is stable
        except (DeviceLostError, NoDeviceError):
            raise
        except DeviceError as error:
            if self._read_at < 0 and not isinstance(error, LockedError):
                raise
            return
        rotation = read_rotation(self._phone.ask("dumpsys", "input"))
        keyboard = _KEYBOARD.search(self._phone.ask("dumpsys", "input_method")) is not None
        dump = self._phone.hierarchy()
        before = len(self._observed.actions), dict(self._observed.left_out)
        self._take_events()
        is_touched = any(fingers.is_down for fingers in self._fingers.values())
        if is_touched or before != (len(self._observed.actions), self._observed.left_out):
            return
        field = None if dump is None else read_field(dump)
        elements = None if dump is None else read_elements(dump, self._phone.logical_size)
        typing = None if field is None else TypingField(*field)
        kept = pixels if self._keeps_pixels else None
        self._screen = ObservedScreen(self._phone.activity, elements, keyboard, typing, kept)
        # An upright screen needs no rotation; a wide one without it may be turned either way.
        self._rotation = 0 if rotation is None and pixels.shape[0] >= pixels.shape[1] else rotation
        self._read_at = time.monotonic()
        if is_new:
            self._ready(len(self._observed.actions))


@contextmanager
def record(asked: Watching) -> Iterator[Recording]:
    """Says "ready" when the screen of the next touch has been read."""

    def ready(number: int) -> None:
        asked.say(f"{number:3d}  ready")

    def stop() -> Observed:
        asked.say("Reading the last screen …")
        return recorder.stop()

    with TouchRecorder(asked.which, ready, asked.keeps_pixels) as recorder:
        yield Recording(asked.goal or "", stop, tick=recorder.tick)
