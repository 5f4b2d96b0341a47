"""The touch screens in a listing of `getevent -lp` (names), or `getevent -p` (numbers)."""

import re
from dataclasses import dataclass

from vlm_agent.devices.adb.touches.events import CODES

_DEVICE = re.compile(r"add device \d+: (/dev/input/event\d{1,4})\s*$")
_NAME = re.compile(r"\s*name:\s+\"(.{0,200})\"\s*$")
_AXIS = re.compile(r".{0,40}?\b([0-9A-Za-z_]{4,40})\s*:\s*value (-?\d{1,10}), min (-?\d{1,10}), max (-?\d{1,10})\b")
_POINTER = "INPUT_PROP_POINTER"
_POINTER_NUMBER = re.compile(r"\s*(?:INPUT_PROP_)?0000\s*$")
_LONGEST_LINE = 1000


@dataclass(frozen=True)
class Panel:
    """A touch screen. `x` and `y`: the least and the largest number of each axis, both included, as the panel is built
    into the phone, whichever way the phone is held. `has_contacts`: it reports several fingers (ABS_MT_…)."""

    path: str
    name: str
    x: tuple[int, int]
    y: tuple[int, int]
    has_contacts: bool

    def fractions(self, x: int, y: int) -> tuple[float, float] | None:
        """The centre of a place, (down, right) in fractions of the panel; None outside of the axes."""
        down, right = ((value - low + 0.5) / (high - low + 1) for value, (low, high) in ((y, self.y), (x, self.x)))
        return (down, right) if 0 <= down <= 1 and 0 <= right <= 1 else None


def read_panels(listing: str) -> dict[str, Panel]:
    """Path → touch screen. Touch pads (INPUT_PROP_POINTER), keys and sensors are left out, and damaged lines."""
    panels: dict[str, Panel] = {}
    for path, lines in _devices(listing):
        name = next((found[1] for line in lines if (found := _NAME.match(line))), "")
        axes = {}
        for line in lines:
            if found := _AXIS.match(line):
                axes[CODES.get(found[1].lower(), found[1])] = (int(found[3]), int(found[4]))
        is_pad = any(_POINTER in line for line in lines) or _has_pointer_number(lines)
        for prefix in ("ABS_MT_POSITION_", "ABS_"):
            x, y = axes.get(f"{prefix}X"), axes.get(f"{prefix}Y")
            has_contacts = prefix != "ABS_"
            is_touch = has_contacts or any("BTN_TOUCH" in line or "014a" in line for line in lines)
            if x and y and x[0] < x[1] and y[0] < y[1] and is_touch and not is_pad:
                panels.setdefault(path, Panel(path, name, x, y, has_contacts))
    return panels


def _devices(listing: str) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for line in listing.splitlines():
        if device := _DEVICE.match(line[:_LONGEST_LINE]):
            found.append((device[1], []))
        elif found:
            found[-1][1].append(line[:_LONGEST_LINE])
    return found


def _has_pointer_number(lines: list[str]) -> bool:
    """Whether the properties, printed as numbers after "input props:", include that of a pointer, 0000."""
    start = next((number for number, line in enumerate(lines) if line.strip() == "input props:"), len(lines))
    return any(_POINTER_NUMBER.match(line) for line in lines[start + 1 :])
