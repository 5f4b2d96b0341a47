"""The display that taps go to: its size in the phone's own units, and its pictures.

Usually `screencap` has the size that `wm size` prints. Under `wm size WIDTHxHEIGHT`, some phones capture their whole
panel all the same. A phone with several displays captures its first one, which may be off, unless it is asked for
another.
"""

import io
import re
import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from PIL import Image

from vlm_agent.devices.adb.link import AdbLink, Words
from vlm_agent.devices.errors import DeviceError, DeviceLostError
from vlm_agent.episodes import is_black

SIZE_COMMAND: Words = ("wm", "size")

IDS_COMMAND: Words = ("dumpsys", "SurfaceFlinger", "--display-id")

CAPTURES = 5
"""The number of attempts to get a whole picture. A capture has no side effects."""

_PAUSE_SECONDS = 0.2

_SIZE = re.compile(r"^(Physical|Override) size: (\d{1,5})x(\d{1,5})\s*$", re.MULTILINE | re.ASCII)

_ID = re.compile(r"^Display (\d+)\b(?: \(HWC display (\d+)\))?", re.MULTILINE | re.ASCII)

_PRIMARY = "0"
"""The number of the display that Android uses by itself, as its hardware composer counts them."""

_SEVERAL = "multiple displays"

_PNG = b"\x89PNG\r\n\x1a\n"

Size = tuple[int, int]
"""(height, width) in pixels."""


class Sizes(NamedTuple):
    """The size of the panel, and the one in use: the same, or the one that the user has set in its place. Upright."""

    panel: Size
    own: Size

    def fit(self, picture: Size) -> bool:
        """Whether a picture of this size, upright or turned, can be one of this screen."""
        return sorted(picture) in (sorted(self.panel), sorted(self.own))

    def __str__(self) -> str:
        return " or ".join(f"{width}×{height}" for height, width in dict.fromkeys(self))


def read_sizes(output: str) -> Sizes | None:
    """From the output of `SIZE_COMMAND`; None if it names no size of a panel."""
    sizes = {name: (int(height), int(width)) for name, width, height in _SIZE.findall(output)}
    panel = sizes.get("Physical", (0, 0))
    own = sizes.get("Override", panel)
    return None if 0 in panel else Sizes(panel, panel if 0 in own else own)


def logical_size(picture: Size, sizes: Sizes | None) -> Size:
    """The size of the screen that a picture of size `picture` shows, turned as the picture is.

    Raises DeviceError for a picture that is not one of this screen.
    """
    if sizes is None:
        return picture
    if not sizes.fit(picture):
        raise DeviceError(f"a picture of {picture[1]}×{picture[0]} pixels is not one of a screen of {sizes}")
    if sorted(picture) != sorted(sizes.panel):
        return picture
    return sizes.own if picture == sizes.panel else sizes.own[::-1]


class Display:
    """The display of the phone that taps go to, whose size is that of `wm size`.

    Its errors are DeviceErrors that name the phone.
    """

    def __init__(self, link: AdbLink) -> None:
        self._link = link
        self._id: str | None = None
        self._sizes = self._read_sizes()

    def refresh(self) -> None:
        """Reads the sizes of a phone with several displays again: folding it changes the one in use."""
        if self._id is None:
            return
        before, self._sizes = self._sizes, self._read_sizes()
        if self._sizes != before:
            self._id = None

    def logical_size(self, picture: Size) -> Size:
        """(height, width) of the screen in the units of taps and elements, turned as a picture of this size is."""
        return logical_size(picture, self._sizes)

    def capture(self) -> bytes:
        """A PNG of the screen, complete and of the size of this display."""
        picture, notes = self._whole(self._id)
        if (self._id is not None or _SEVERAL not in notes.lower()) and self._fits(picture):
            return picture
        return self._chosen(picture)

    def _fits(self, picture: bytes) -> bool:
        return self._sizes is None or self._sizes.fit(_size_of(picture))

    def _chosen(self, first: bytes) -> bytes:
        """A picture of the only display that is on and has the size of `wm size`. `first`: of the usual display."""
        self._sizes, numbers = self._read_sizes(), dict(_ID.findall(self._link.text(IDS_COMMAND)))
        if len(numbers) < 2 and self._fits(first):
            return first
        pictures = {one: picture for one in numbers if (picture := self._picture_of(one)) is not None}
        fitting = {one: picture for one, picture in pictures.items() if self._fits(picture)}
        # Of displays of the same size, one that is off is black, and the primary one may be mirrored.
        lit = {one: picture for one, picture in fitting.items() if not is_black(read_picture(picture))}
        primary = {one: picture for one, picture in lit.items() if numbers[one] == _PRIMARY}
        for found in (fitting, lit, primary):
            if len(found) == 1:
                ((self._id, picture),) = found.items()
                return picture
        raise self._error(first, pictures)

    def _error(self, first: bytes, pictures: Mapping[str, bytes]) -> DeviceError:
        displays = ", ".join(f"{one} ({_in_words(picture)})" for one, picture in pictures.items())
        remedy = "run `adb shell wm size reset`"
        if displays:
            remedy = (
                f"of its displays, {displays}, exactly one must be on and have this size; turn others off, or {remedy}"
            )
        return DeviceError(
            f"the picture of {self._link.serial} has {_in_words(first)} pixels, and its screen is "
            f"{self._sizes or 'of unknown size'} (`adb shell wm size`), so that touches would be at other places; "
            f"{remedy}"
        )

    def _picture_of(self, display: str) -> bytes | None:
        try:
            return self._whole(display)[0]
        except DeviceLostError:
            raise
        except DeviceError:
            return None

    def _whole(self, display: str | None) -> tuple[bytes, str]:
        """A complete picture, and what the phone printed with it. Raises DeviceError after `CAPTURES` attempts."""
        words = ("screencap", "-p", *(() if display is None else ("-d", display)))
        for attempt in range(CAPTURES):
            if attempt:
                time.sleep(_PAUSE_SECONDS)
            answer = self._link.query(words)
            # Some phones print a warning before the picture.
            before, mark, rest = answer.out.partition(_PNG)
            notes = (answer.err + before).decode(errors="replace").strip()
            picture = mark + rest
            if is_whole(picture):
                return picture, notes
        what = f"{len(picture):,} bytes that are not a whole PNG" if picture else "no picture"
        raise DeviceError(
            f"`{' '.join(words)}` on {self._link.serial} returned {what}, {CAPTURES} times, with status "
            f"{answer.status}: {notes[:400] or 'no message'}; open another app, because a window may forbid pictures "
            "of itself, or unplug the phone and plug it in again"
        )

    def _read_sizes(self) -> Sizes | None:
        return read_sizes(self._link.text(SIZE_COMMAND))


def is_whole(picture: bytes) -> bool:
    """Whether the bytes are a PNG up to its last chunk, with right checksums. What follows is ignored."""
    try:
        with Image.open(io.BytesIO(picture), formats=["PNG"]) as image:
            image.verify()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return False
    return True


def _size_of(picture: bytes) -> Size:
    """The size of a whole PNG."""
    return int.from_bytes(picture[20:24], "big"), int.from_bytes(picture[16:20], "big")


def _in_words(picture: bytes) -> str:
    height, width = _size_of(picture)
    return f"{width}×{height}"


def read_picture(picture: bytes) -> np.ndarray:
    """uint8 (height, width, 3), RGB. Raises OSError, SyntaxError or ValueError for bytes that no decoder reads."""
    with Image.open(io.BytesIO(picture)) as image:
        return np.array(image.convert("RGB"))
