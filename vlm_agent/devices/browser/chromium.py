"""Chromium for the browser phone: finds it, starts it under Playwright, serves only the local pages, and touches them.

Touch events go through Chromium's DevTools protocol; points are (x, y) in CSS pixels.
"""

import json
import mimetypes
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import font_roboto

from vlm_agent.devices.browser.tasks import PAGES
from vlm_agent.devices.errors import DeviceError
from vlm_agent.files.installation import install_line

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page, Route, WebSocketRoute

ORIGIN = "http://phone.invalid"
"""The origin of the pages. It is never resolved: this process answers or blocks every request."""

VIEWPORT = {"width": 412, "height": 915}
"""In CSS pixels."""

SCALE = 2.625
"""Screen pixels per CSS pixel."""

_FILES = {"index.html", "look.css", *(f"{name}.js" for name in ("phone", "home", "shop", "settings"))}
_FONTS = {"/Roboto.ttf": "Roboto", "/RobotoBold.ttf": "RobotoBold"}
_FLAGS = (
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
    # A second barrier below the request routes: no name resolves, no address is reachable, no UDP.
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)

Point = tuple[float, float]

_MOVES, _MOVE_SECONDS = 10, 0.03
_REST = 0.3
"""Seconds (in event timestamps) between the last events of a swipe, so that scrolling has no momentum."""

_FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


class NoBrowserError(DeviceError):
    """Playwright or Chromium is not installed, or Chromium does not start."""


def find_chromium() -> str:
    """The path of $CHROMIUM if it is set, otherwise of `chromium`. Raises NoBrowserError if this is not a program."""
    name = os.environ.get("CHROMIUM")
    program = shutil.which("chromium" if name is None else name)
    if program is not None:
        return program
    if name is not None:
        raise NoBrowserError(f"$CHROMIUM is {name!r}, which is not an executable program")
    raise NoBrowserError(
        "`chromium` is not on the path; install it (Debian: apt-get install chromium), or set CHROMIUM to the program"
    )


@contextmanager
def chromium() -> Iterator["Browser"]:
    """A context manager for a headless browser under Playwright.

    Raises NoBrowserError if Playwright or Chromium is missing or does not start.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise NoBrowserError(f"the browser phone needs Playwright ({error}); {install_line('browser')}") from error
    program = find_chromium()
    with ExitStack() as stack:
        try:
            playwright = sync_playwright().start()
        except Error as error:
            raise NoBrowserError(f"Playwright does not start here: {error.message}") from error
        stack.callback(playwright.stop)
        try:
            browser = playwright.chromium.launch(executable_path=program, args=list(_FLAGS))
        except Error as error:
            raise NoBrowserError(f"{program} does not start: {error.message}") from error
        stack.callback(browser.close)
        yield browser


def open_page(browser: "Browser", world: dict, blocked: list[str], faults: list[str]) -> "Page":
    """A page in a new, empty browser context: the phone at its home screen, with the contents `world` (`make_world`).

    Appends the addresses of blocked requests to `blocked`, and exceptions of the pages' scripts to `faults`.
    """
    context = browser.new_context(
        viewport={"width": VIEWPORT["width"], "height": VIEWPORT["height"]},
        device_scale_factor=SCALE,
        is_mobile=True,
        has_touch=True,
        locale="en-GB",
        timezone_id="UTC",
        color_scheme="light",
        service_workers="block",
        accept_downloads=False,
    )
    context.route("**/*", lambda route: _answer(route, world, blocked))
    context.route_web_socket("**/*", lambda socket: _refuse(socket, blocked))
    page = context.new_page()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(f"{ORIGIN}/index.html")
    return page


def _refuse(socket: "WebSocketRoute", blocked: list[str]) -> None:
    blocked.append(socket.url)
    socket.close()


def _answer(route: "Route", world: dict, blocked: list[str]) -> None:
    url = route.request.url
    path = url.removeprefix(ORIGIN) if url.startswith(f"{ORIGIN}/") else ""
    if path == "/world.js":
        route.fulfill(body=f"const WORLD = {json.dumps(world)};", content_type="text/javascript; charset=utf-8")
    elif path in _FONTS:
        route.fulfill(path=font_roboto.font_files[_FONTS[path]], content_type="font/ttf")
    elif path[1:] in _FILES:
        content_type = f"{mimetypes.types_map['.' + path.rpartition('.')[2]]}; charset=utf-8"
        route.fulfill(body=(PAGES / path[1:]).read_bytes(), content_type=content_type)
    else:
        blocked.append(url)
        route.abort("aborted")  # an aborted navigation leaves the page as it is


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
