"""What `getevent` prints: the touch screens of a phone (`-lp`), and its events, one a line (`-lt`):

[   85379.853206] /dev/input/event2: EV_ABS       ABS_MT_POSITION_X    000002b1
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

LONGEST_LINE = 200

_VALUES = {"DOWN": 1, "UP": 0, "REPEAT": 2}
_LINE = re.compile(
    r"\[\s*(\d{1,12}\.\d{1,6})\]\s+(/dev/input/event\d{1,4}):\s+"
    r"(EV_[A-Z]{1,20})\s+([0-9A-Z_a-z]{4,40})\s+([0-9a-f]{8}|DOWN|UP|REPEAT)\s*$"
)
_DEVICE = re.compile(r"add device \d+: (/dev/input/event\d{1,4})\s*$")
_AXIS = re.compile(r".{0,40}?\b(ABS_[0-9A-Z_]{1,40})\s*:\s*value (-?\d{1,10}), min (-?\d{1,10}), max (-?\d{1,10})\b")
_LONGEST_LINE_OF_LISTING = 1000


class TouchEvent(NamedTuple):
    """`seconds`: by the phone's clock. `path`: of the device."""

    seconds: float
    path: str
    type: str
    code: str
    value: int


def read_event(line: str) -> TouchEvent | None:
    """None for any other line."""
    found = _LINE.match(line) if len(line) <= LONGEST_LINE else None
    if found is None:
        return None
    number = _VALUES.get(found[5])
    if number is None:
        number = int(found[5], 16)
        number -= (number >> 31) << 32
    return TouchEvent(float(found[1]), found[2], found[3], found[4], number)


class Lines:
    """Complete lines of a stream of bytes. The rest of a line that is too long is discarded."""

    def __init__(self) -> None:
        self._rest, self._discards = b"", False

    def take(self, data: bytes) -> Iterator[str]:
        *whole, rest = (self._rest + data).split(b"\n")
        for number, line in enumerate(whole):
            if not (number == 0 and self._discards):
                yield line.decode("ascii", "replace").rstrip("\r")
        self._discards = (self._discards and not whole) or len(rest) > LONGEST_LINE
        self._rest = b"" if self._discards else rest


@dataclass(frozen=True)
class Panel:
    """A touch screen. `x` and `y`: the least and the largest number of each axis, both included, as the panel is built
    into the phone, whichever way the phone is held."""

    path: str
    x: tuple[int, int]
    y: tuple[int, int]

    def fractions(self, x: int | None, y: int | None) -> tuple[float, float] | None:
        """The centre of a place, (down, right) in fractions of the panel; None outside of the axes, or unknown."""
        if x is None or y is None:
            return None
        down, right = ((value - low + 0.5) / (high - low + 1) for value, (low, high) in ((y, self.y), (x, self.x)))
        return (down, right) if 0 <= down <= 1 and 0 <= right <= 1 else None


def read_panels(listing: str) -> dict[str, Panel]:
    """Path → touch screen that reports fingers in slots. Touch pads, keys, sensors and damaged lines are left out."""
    panels: dict[str, Panel] = {}
    for path, lines in _devices(listing):
        axes = {found[1]: (int(found[3]), int(found[4])) for line in lines if (found := _AXIS.match(line))}
        x, y = axes.get("ABS_MT_POSITION_X"), axes.get("ABS_MT_POSITION_Y")
        is_screen = "ABS_MT_SLOT" in axes and not any("INPUT_PROP_POINTER" in line for line in lines)
        if is_screen and x and y and x[0] < x[1] and y[0] < y[1]:
            panels.setdefault(path, Panel(path, x, y))
    return panels


def _devices(listing: str) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for line in listing.splitlines():
        if device := _DEVICE.match(line[:_LONGEST_LINE_OF_LISTING]):
            found.append((device[1], []))
        elif found:
            found[-1][1].append(line[:_LONGEST_LINE_OF_LISTING])
    return found
