"""Lines of `getevent -lt`:

    [   85379.853206] /dev/input/event2: EV_ABS       ABS_MT_POSITION_X    000002b1

Without `-l`, types and codes are numbers; where one device is named, lines have no path; earlier versions of Android
write the time as `85379-853206:`.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

CODES = {
    "0000": "ABS_X",
    "0001": "ABS_Y",
    "002f": "ABS_MT_SLOT",
    "0035": "ABS_MT_POSITION_X",
    "0036": "ABS_MT_POSITION_Y",
    "0039": "ABS_MT_TRACKING_ID",
}
"""Number → name of the axes that matter (Linux, `input-event-codes.h`)."""

_SYN = {"0000": "SYN_REPORT", "0002": "SYN_MT_REPORT", "0003": "SYN_DROPPED"}
_KEYS = {"014a": "BTN_TOUCH", "009e": "KEY_BACK", "00ac": "KEY_HOMEPAGE", "0066": "KEY_HOME", "001c": "KEY_ENTER"}
_KEYS |= {"0244": "KEY_APPSELECT"}
_TYPES = {"0000": ("EV_SYN", _SYN), "0001": ("EV_KEY", _KEYS), "0003": ("EV_ABS", CODES)}
_VALUES = {"DOWN": 1, "UP": 0, "REPEAT": 2}

_LINE = re.compile(
    r"\[?\s*(\d{1,12})[.-](\d{1,6})\]?:?\s+(?:(/dev/input/event\d{1,4}):\s+)?"
    r"([0-9A-Z_a-z]{4,40})\s+([0-9A-Z_a-z]{4,40})\s+([0-9a-f]{8}|DOWN|UP|REPEAT)\s*$"
)
LONGEST_LINE = 200


class TouchEvent(NamedTuple):
    """`seconds`: by the phone's clock. `path`: of the device, empty if the line has none."""

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
    kind, code, value = found[4], found[5], found[6]
    if kind in _TYPES:
        kind, names = _TYPES[kind]
        code = names.get(code, code)
    number = _VALUES.get(value)
    if number is None:
        number = int(value, 16)
        number -= (number >> 31) << 32
    return TouchEvent(int(found[1]) + float(f"0.{found[2]}"), found[3] or "", kind, code, number)


class Lines:
    """Complete lines of a stream of bytes. Of a line that is too long, the rest is discarded."""

    def __init__(self) -> None:
        self._rest, self._discards = b"", False

    def take(self, data: bytes) -> Iterator[str]:
        *whole, rest = (self._rest + data).split(b"\n")
        for number, line in enumerate(whole):
            if not (number == 0 and self._discards):
                yield line.decode("ascii", "replace").rstrip("\r")
        self._discards = (self._discards and not whole) or len(rest) > LONGEST_LINE
        self._rest = b"" if self._discards else rest
