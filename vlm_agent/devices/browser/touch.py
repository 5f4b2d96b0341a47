"""Touch events through Chromium's DevTools protocol. Points are (x, y) in CSS pixels."""

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

Point = tuple[float, float]

_MOVES, _MOVE_SECONDS = 10, 0.03
_REST = 0.3
"""Seconds (in event timestamps) between the last events of a swipe, so that scrolling has no momentum."""

_FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def tap(session: "CDPSession", point: Point) -> None:
    """A touch of 50 ms."""
    now = time.time()
    _touch(session, "touchStart", point, now)
    _touch(session, "touchEnd", None, now + 0.05)


def swipe(page: "Page", session: "CDPSession", start: Point, end: Point) -> None:
    """A swipe in `_MOVES` straight steps, without momentum at its end."""
    now = time.time()
    _touch(session, "touchStart", start, now)
    for move in range(1, _MOVES + 1):
        part = move / _MOVES
        point = (start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part)
        _touch(session, "touchMove", point, now + move * _MOVE_SECONDS)
    end_of_moves = now + _MOVES * _MOVE_SECONDS
    # Chromium ignores a move to the same point, so the finger moves half a pixel and back, at negligible speed.
    for rest, offset in ((_REST, 0.5), (2 * _REST, 0.0)):
        page.evaluate(_FRAME)
        _touch(session, "touchMove", (end[0], end[1] + offset), end_of_moves + rest)
    page.evaluate(_FRAME)
    _touch(session, "touchEnd", None, end_of_moves + 3 * _REST)


def _touch(session: "CDPSession", kind: str, point: Point | None, seconds: float) -> None:
    points = [] if point is None else [{"x": point[0], "y": point[1]}]
    session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points, "timestamp": seconds})
