"""The size of the screen in the phone's own units, in which taps and the bounds of elements are.

Usually `screencap` has this size. Under `wm size WIDTHxHEIGHT`, some phones capture their whole panel all the same.
"""

import re
from typing import NamedTuple

from vlm_agent.devices.adb.commands import Words

SIZE_COMMAND: Words = ("wm", "size")

_SIZE = re.compile(r"^(Physical|Override) size: (\d{1,5})x(\d{1,5})\s*$", re.MULTILINE | re.ASCII)

Size = tuple[int, int]
"""(height, width) in pixels."""


class Override(NamedTuple):
    """The size of the panel, and the one that the user has set in its place, both upright."""

    panel: Size
    own: Size


def read_override(output: str) -> Override | None:
    """From the output of `SIZE_COMMAND`; None if the size of the panel is in use."""
    sizes = {name: (int(height), int(width)) for name, width, height in _SIZE.findall(output)}
    if "Physical" not in sizes or "Override" not in sizes or 0 in sizes["Override"]:
        return None
    return Override(sizes["Physical"], sizes["Override"])


def logical_size(picture: Size, override: Override | None) -> Size:
    """The size of the screen that a picture of size `picture` shows, turned as the picture is."""
    if override is None or sorted(picture) != sorted(override.panel):
        return picture
    is_turned = picture != override.panel
    return override.own[::-1] if is_turned else override.own
