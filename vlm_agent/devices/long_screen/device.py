"""A device that shows a page that scrolls as one tall picture, and touches what lies beyond the screen (VisionTasker).

with AdbPhone() as phone:
    device = LongScreen(phone)
    picture = device.screenshot()           # scrolls to the end of the page, and back
    device.perform(Action.tap(0.9, 0.5))    # scrolls until the place is on the screen, then taps it

The picture begins where the page is: what lies above is not part of it.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from vlm_agent.devices.device import Device, DeviceAround
from vlm_agent.devices.errors import ActionInDoubtError, NotPermittedError, RefusedError
from vlm_agent.devices.long_screen.matching import Scroll, measure_scroll, profile
from vlm_agent.devices.long_screen.tall import TallScreen, is_on_picture, join, tall_elements
from vlm_agent.episodes import Action, UiElement, digest

LIMIT = 5.0
"""The default height of the tallest picture, in screens."""

_LOW = 0.55
"""Where the finger is lowest, in screen fractions: above an open keyboard, where a swipe would type."""

_FIRST, _SHORTEST, _LONGEST = 0.2, 0.06, 1 / 3
"""Lengths of swipes, in screen fractions: the first one, before it is known how far the page moves; a longer one than a
tap; and one that ends below the status bar, where a swipe down would open the notifications."""

_CLOSE = 1 / 200
"""The fraction of the screen by which the page may be off where it was. Touches take the measured rest into account."""

_PATIENCE = 8
"""Swipes per screen of the tallest picture after which a page counts as one that does not come back. Half as many go
down, so that those that go back suffice on a page that moves by a few rows with each swipe."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class OwnAction:
    """An action that the device is about to perform, and the screen that it is performed on.

    `looks`: it scrolls to see the page. Otherwise it is an action of the agent on a tall picture, or a swipe on the way
    to it.
    """

    action: Action
    activity: str
    elements: tuple[UiElement, ...] | None
    looks: bool


@dataclass(frozen=True, eq=False)
class _Shot:
    """One screen of the phone."""

    pixels: np.ndarray
    elements: tuple[UiElement, ...] | None
    activity: str
    profile: np.ndarray

    @property
    def digest(self) -> bytes:
        return digest(self.pixels)


class LongScreen(DeviceAround):
    """A `Device` around `device`. `size` is that of the phone's screen, not of the tall picture.

    Taps, long presses and swipes sideways are in fractions of the tall picture. Swipes up and down are in fractions of
    the screen: they scroll the page from where it is. Elements are those of the whole picture.

    `limit`: the height of the tallest picture, in screens. `launcher`: the package of the phone's home screen. `permit`
    is asked before every action that the device performs by itself, and before the agent's actions on a tall picture.
    It returns why an action is not permitted, or None: a page is not scrolled then, and an action of the agent raises
    NotPermittedError. `record` is called before every action on the phone that is not the agent's own as it is. `warn`
    gets a message for the user: if a page does not come back, if it is taller than `limit`, or if something beyond the
    screen cannot be brought into view; then ActionInDoubtError is raised and nothing is touched.

    A launcher is never scrolled, because a swipe up opens its drawer; nor is a screen that did something else before.
    """

    def __init__(
        self,
        device: Device,
        limit: float = LIMIT,
        launcher: str | None = None,
        permit: Callable[[OwnAction], str | None] = lambda action: None,
        record: Callable[[Action], None] = lambda action: None,
        warn: Callable[[str], None] = _LOG.warning,
    ) -> None:
        super().__init__(device)
        self._limit, self._launcher = limit, launcher
        self._permit, self._record, self._warn = permit, record, warn
        self._unscrollable: set[bytes] = set()
        self._warned: set[str] = set()
        self._shot: _Shot | None = None
        self._tall: TallScreen | None = None
        self._position = 0
        self._ratio = 0.0  # rows that the page moves per row of the finger; 0 is unknown

    def screenshot(self) -> np.ndarray:
        """The page from where it is to its end, or to the limit: uint8 (height, width, 3), RGB.

        The screen alone if it does not scroll, must not be scrolled, or did not come back.
        """
        self._tall = None
        first = self._look()
        if first.digest in self._unscrollable or first.activity.partition("/")[0] == self._launcher:
            return first.pixels
        shots, scrolls = self._look_down(first)
        if not scrolls or not self._return(first):
            return self._shown.pixels
        stitched = join([shot.pixels for shot in shots], scrolls)
        elements = tall_elements(stitched, len(first.pixels), [shot.elements for shot in shots])
        self._tall = TallScreen(stitched, elements, len(first.pixels), first.activity)
        return stitched.pixels

    def elements(self) -> tuple[UiElement, ...] | None:
        return self._shown.elements if self._tall is None else self._tall.elements

    def perform(self, action: Action) -> None:
        """Raises NotPermittedError if the action is not permitted on the screen that it is performed on."""
        tall, self._tall = self._tall, None
        if tall is None:
            self._device.perform(action)
            return
        if not is_on_picture(action):
            self._check(action, looks=False)
            self._device.perform(action)
            return
        row = action.touch_yx[0] * tall.rows
        place = tall.place(row, self._position)
        touch = tall.on_screen(action, self._bring_into_view(tall, row) if place is None else place)
        # The picture may lack what lies there: a floating button is in it once, at another place.
        self._check(touch, looks=False)
        self._own(touch)

    @property
    def _patience(self) -> int:
        """Swipes after which the device stops."""
        return _PATIENCE * int(self._limit + 1)

    # One screen

    @property
    def _shown(self) -> _Shot:
        """The last screen of the phone."""
        return self._look() if self._shot is None else self._shot

    def _look(self) -> _Shot:
        pixels = self._device.screenshot()
        self._shot = _Shot(pixels, self._device.elements(), self._device.activity, profile(pixels))
        return self._shot

    def _own(self, action: Action) -> None:
        self._record(action)
        self._device.perform(action)

    def _check(self, action: Action, looks: bool) -> None:
        shot = self._shown
        reason = self._permit(OwnAction(action, shot.activity, shot.elements, looks))
        if reason is not None:
            raise NotPermittedError(f"an action on a long screen was not performed: {reason}")

    def _scroll(self, rows: float, looks: bool) -> Scroll | None:
        """Scrolls by about `rows` (negative: back), measures how far, and adds it to the position.

        None if it cannot be measured. Raises NotPermittedError.
        """
        before = self._shown
        length = abs(rows) / self._ratio / len(before.pixels) if self._ratio else _FIRST
        length = min(max(_SHORTEST, length), _LONGEST)
        swipe = _swipe(length if rows > 0 else -length)
        self._check(swipe, looks)
        with suppress(ActionInDoubtError):  # the next picture shows whether it scrolled
            self._own(swipe)
        now = self._look()
        if now.pixels.shape != before.pixels.shape or now.activity != before.activity:
            return None
        pair = (before, now) if rows > 0 else (now, before)
        scroll = measure_scroll(pair[0].profile, pair[1].profile)
        if scroll is not None:
            self._position += scroll.rows if rows > 0 else -scroll.rows
            # The largest: at the end of a page it moves less than the finger.
            self._ratio = max(self._ratio, scroll.rows / length / len(before.pixels))
        return scroll

    # The page

    def _look_down(self, first: _Shot) -> tuple[list[_Shot], list[Scroll]]:
        """All screens down to the end or the limit, and the scrolls between them; none if the page does not scroll."""
        height = len(first.pixels)
        shots, scrolls = [first], list[Scroll]()
        self._position, self._ratio = 0, 0.0
        rows = _FIRST * height
        while self._position + height < self._limit * height:
            if len(scrolls) == self._patience // 2:
                self._warn_once(f"{_name(first)} has no end after {len(scrolls)} swipes; the rest is cut")
                break
            try:
                scroll = self._scroll(rows, looks=True)
            except (NotPermittedError, RefusedError):
                break
            if scroll is None:
                self._give_up(first)
                return shots, []
            if not scroll.rows:
                return shots, scrolls
            shots.append(self._shown)
            scrolls.append(scroll)
            rows = (height - scroll.top - scroll.bottom) / 2
        else:
            self._warn_once(f"{_name(first)} is taller than {self._limit:g} screens; the rest is cut")
        return shots, scrolls

    def _give_up(self, first: _Shot) -> None:
        """After a swipe that did not scroll the page: swipes back once, and never scrolls this screen again."""
        self._unscrollable.add(first.digest)
        now = self._shown
        if now.activity == first.activity and now.pixels.shape == first.pixels.shape:
            with suppress(NotPermittedError, RefusedError):
                self._scroll(-_LONGEST * len(first.pixels), looks=True)
        if not _is_same(first, self._shown):
            self._warn(f"a swipe up did not scroll {_name(first)} but changed it; the screen is shown as it is now")

    def _return(self, first: _Shot) -> bool:
        """Scrolls back to where the first screen was; False, after a warning, if the page does not come back."""
        height, stuck = len(first.pixels), 0
        for _ in range(self._patience):
            self._measure_position(first)
            if abs(self._position) <= height * _CLOSE:
                return True
            try:
                scroll = self._scroll(self._rows_back(height, is_stuck=stuck > 0), looks=True)
            except (NotPermittedError, RefusedError):
                break
            stuck = stuck + 1 if scroll is not None and not scroll.rows else 0
            if scroll is None or stuck == 2:
                break
        self._unscrollable.add(first.digest)
        self._warn(f"{_name(first)} was scrolled and did not come back; the screen is shown as it is now")
        return False

    def _rows_back(self, height: int, is_stuck: bool) -> float:
        """The next scroll towards position 0, so that the last one is neither too short to be a swipe nor too long."""
        shortest, longest = (length * self._ratio * height for length in (_SHORTEST, _LONGEST))
        away = abs(self._position)
        if away < shortest and not is_stuck:
            return 2 * shortest
        # Half a row further, so that a page that was at its top ends there and not a fraction of a row below.
        return -self._position / 2 if longest < away < longest + shortest else -self._position - 0.5

    def _measure_position(self, first: _Shot) -> None:
        """Measures the position against the first screen where both overlap: the sum of many scrolls may be off."""
        now, limit = self._shown, len(first.pixels) // 2
        if now.pixels.shape != first.pixels.shape or abs(self._position) > limit:
            return
        down, up = measure_scroll(first.profile, now.profile), measure_scroll(now.profile, first.profile)
        found = [*([] if down is None else [down.rows]), *([] if up is None else [-up.rows])]
        if found:
            self._position = min(found, key=lambda rows: abs(rows - self._position))

    def _bring_into_view(self, tall: TallScreen, row: float) -> float:
        """Scrolls until the screen shows this row of the tall picture, and returns the row of the screen."""
        for _ in range(self._patience):
            scroll = self._scroll(tall.position_for(row) - self._position, looks=False)
            if scroll is None:
                break
            # A page may end a row earlier than its picture, by rounding: then it is stuck, and the row is visible.
            place = tall.place(row, self._position, is_stuck=not scroll.rows)
            if place is not None:
                return place
            if not scroll.rows:
                break
        message = f"a place beyond the screen of {tall.activity or 'the page'} did not come into view"
        self._warn(f"{message}; nothing was touched")
        raise ActionInDoubtError(message)

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            self._warn(message)


def _swipe(length: float) -> Action:
    """A swipe up by `length` of the screen, or down if it is negative."""
    low, high = (_LOW, 0.5), (_LOW - abs(length), 0.5)
    return Action.swipe(low, high) if length > 0 else Action.swipe(high, low)


def _is_same(first: _Shot, now: _Shot) -> bool:
    if first.activity != now.activity or first.pixels.shape != now.pixels.shape:
        return False
    scroll = measure_scroll(first.profile, now.profile)
    return scroll is not None and not scroll.rows


def _name(shot: _Shot) -> str:
    return shot.activity or "the page"
