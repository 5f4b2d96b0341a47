"""`getevent`: the simulated phone's touch screen, and its events while it is operated.

What adb's `input` does counts as a finger here, and its keys as keys of the phone. On a real phone, `getevent` prints
fingers and keys alone.
"""

import queue
import threading
import time
from collections.abc import Callable

from vlm_agent.episodes import Action
from vlm_agent.simulator.adb_daemon.connection import Service
from vlm_agent.simulator.adb_daemon.handset import Handset

PATH = "/dev/input/event1"

_SECONDS = {"tap": 0.06, "swipe": 0.3, "long_press": 1.0}


def listing(handset: Handset) -> str:
    """The output of `getevent -lp`. A step of the axes is a pixel of the screen."""
    height, width = handset.phone.size
    axes = {"ABS_MT_SLOT": 9, "ABS_MT_POSITION_X": width - 1, "ABS_MT_POSITION_Y": height - 1}
    axes["ABS_MT_TRACKING_ID"] = 65535
    lines = [f"{name:<22}: value 0, min 0, max {last}, fuzz 0, flat 0, resolution 0" for name, last in axes.items()]
    body = "\n                ".join(lines)
    return (
        f'add device 1: {PATH}\n  name:     "simulated_touch"\n  events:\n    KEY (0001): BTN_TOUCH\n'
        f"    ABS (0003): {body}\n  input props:\n    INPUT_PROP_DIRECT"
    )


def lines_of(action: Action, size: tuple[int, int], number: int, now: float) -> list[str]:
    """The output of `getevent -lt` for an action. `number`: of the contact, `now`: in seconds."""
    facts = action.kind.facts
    if facts.key is not None:
        return [
            line
            for value, later in (("DOWN", 0.0), ("UP", 0.05))
            for line in (_line(now + later, "EV_KEY", facts.key[1], value), _sync(now + later))
        ]
    if not facts.points:
        return []
    end = now + _SECONDS[action.name]
    return [
        _line(now, "EV_ABS", "ABS_MT_TRACKING_ID", f"{number:08x}"),
        _line(now, "EV_KEY", "BTN_TOUCH", "DOWN"),
        *_place(now, action.touch_yx, size),
        _sync(now),
        *([*_place(end, action.lift_yx, size), _sync(end)] if action.is_swipe else []),
        _line(end, "EV_ABS", "ABS_MT_TRACKING_ID", "ffffffff"),
        _line(end, "EV_KEY", "BTN_TOUCH", "UP"),
        _sync(end),
    ]


class EventService(Service):
    """`getevent -lt`: prints events until the client closes the stream. `frame` wraps a piece of output.

    It prints on a thread of its own: the phone must not wait for a slow client.
    """

    def __init__(self, handset: Handset, frame: Callable[[bytes], bytes]) -> None:
        self._handset, self._frame = handset, frame
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._count = 0

    def attach(self, push: Callable[[bytes], None]) -> None:
        """`push` sends data to the client."""
        threading.Thread(target=self._print, args=(push,), daemon=True).start()
        with self._handset.lock:
            self._handset.listeners.append(self._note)

    def close(self) -> None:
        """Ends the thread; the client has closed the stream."""
        if self._note in self._handset.listeners:
            self._handset.listeners.remove(self._note)
        self._lines.put(None)

    def _note(self, action: Action) -> None:
        self._count += 1
        for line in lines_of(action, self._handset.phone.size, self._count, time.monotonic()):
            self._lines.put(line)

    def _print(self, push: Callable[[bytes], None]) -> None:
        while (line := self._lines.get()) is not None:
            push(self._frame(f"{line}\r\n".encode()))


def _line(seconds: float, kind: str, code: str, value: str) -> str:
    return f"[{seconds:15.6f}] {PATH}: {kind:<12} {code:<20} {value}"


def _sync(seconds: float) -> str:
    return _line(seconds, "EV_SYN", "SYN_REPORT", "00000000")


def _place(seconds: float, point_yx: tuple[float, float], size: tuple[int, int]) -> list[str]:
    y, x = (min(int(value * pixels), pixels - 1) for value, pixels in zip(point_yx, size, strict=True))
    codes = {"ABS_MT_POSITION_X": x, "ABS_MT_POSITION_Y": y}
    return [_line(seconds, "EV_ABS", code, f"{value:08x}") for code, value in codes.items()]
