"""A finger on the browser phone, by touch events of Chromium's DevTools protocol. Points are (x, y) in CSS pixels."""

import time

Point = tuple[float, float]

_MOVES, _BETWEEN = 10, 0.03
_REST = 0.3
"""Seconds, as the browser is told them, that the finger rests before it is lifted: nothing scrolls on by itself."""

_FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def tap(session, point: Point) -> None:
    now = time.time()
    _touch(session, "touchStart", point, now)
    _touch(session, "touchEnd", None, now + 0.05)


def swipe(page, session, start: Point, end: Point) -> None:
    now = time.time()
    _touch(session, "touchStart", start, now)
    for move in range(1, _MOVES + 1):
        part = move / _MOVES
        point = tuple(a + (b - a) * part for a, b in zip(start, end, strict=True))
        _touch(session, "touchMove", point, now + move * _BETWEEN)
    moved = now + _MOVES * _BETWEEN
    # A move to where the finger is would be no event; half a pixel and back is one, and is no speed.
    for rest, offset in ((_REST, 0.5), (2 * _REST, 0.0)):
        page.evaluate(_FRAME)
        _touch(session, "touchMove", (end[0], end[1] + offset), moved + rest)
    page.evaluate(_FRAME)
    _touch(session, "touchEnd", None, moved + 3 * _REST)


def _touch(session, kind: str, point: Point | None, seconds: float) -> None:
    points = [] if point is None else [{"x": point[0], "y": point[1]}]
    session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points, "timestamp": seconds})
