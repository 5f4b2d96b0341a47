"""A phone in a browser: Chromium under Playwright, with a realistic-looking small shop and settings.

with BrowserPhone("shop", seed=7) as phone:
    screen = phone.screenshot()
    phone.perform(Action.tap(0.5, 0.5))

Requires the extra `browser` and Chromium. Pages come from `browser/pages/`; every other request is blocked
and recorded. The phone has no keyboard and no system bars; typed text goes into the focused field. Characters that
Roboto lacks are drawn with the computer's fonts, so such screens may differ between computers.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from vlm_agent.devices.browser.chromium import SCALE, VIEWPORT, chromium, open_page, swipe, tap
from vlm_agent.devices.browser.tasks import SITES, make_world
from vlm_agent.devices.errors import DeviceError, DeviceLostError
from vlm_agent.episodes import Action, ActionKind, UiElement, Widget

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

WAIT_MILLISECONDS = 1000


class BrowserPhone:
    """`site`: the site to open first, "shop" or "settings"; None is the home screen. `seed` determines the contents.

    Playwright allows one browser phone at a time per thread, and none in a running asyncio loop. Raises NoBrowserError
    if Playwright or Chromium is missing or does not start, DeviceLostError if Chromium exits.
    """

    def __init__(self, site: str | None = None, seed: int = 0) -> None:
        self.status: ActionKind | None = None
        self.answer: str | None = None
        self.activity = ""
        self.blocked: list[str] = []
        """Addresses of the blocked requests since the last reset."""
        self._elements: tuple[UiElement, ...] | None = None
        self._faults: list[str] = []
        self._page: Page
        self._session: CDPSession
        with ExitStack() as stack:
            self._browser = stack.enter_context(chromium())
            self.reset(site, seed)
            self._open = stack.pop_all()

    def __enter__(self) -> "BrowserPhone":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        with _device_errors():
            self._open.close()

    def reset(self, site: str | None = None, seed: int = 0) -> None:
        """Resets to the initial state of a phone with these arguments, in a new browser context.

        Raises DeviceError for an unknown site.
        """
        if site is not None and site not in SITES:
            raise DeviceError(f"unknown site {site!r}; choose {' or '.join(SITES)}")
        with _device_errors():
            for context in self._browser.contexts:
                context.close()
            self.blocked, self._faults, self._elements = [], [], None
            self.status, self.answer = None, None
            self._page = open_page(self._browser, self.world(seed), self.blocked, self._faults)
            self._session = self._page.context.new_cdp_session(self._page)
            if site is not None:
                self._open_site(site)
            self._settle()

    def world(self, seed: int) -> dict:
        """The contents of the pages (`make_world`); a phone with others overrides it."""
        return make_world(seed)

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) in pixels: 2402 × 1082."""
        return int(np.ceil(VIEWPORT["height"] * SCALE)), int(np.ceil(VIEWPORT["width"] * SCALE))

    def screenshot(self) -> np.ndarray:
        """uint8 (height, width, 3), RGB. Also updates `activity`, for example to "shop/cart"."""
        with _device_errors():
            picture = self._page.screenshot()
            self._read()
        with Image.open(io.BytesIO(picture)) as image:
            return np.array(image.convert("RGB"))

    def elements(self) -> tuple[UiElement, ...]:
        """Texts, fields (their content or hint) and labelled buttons of the last screenshot, all of type TEXT."""
        if self._elements is None:
            with _device_errors():
                return self._read()
        return self._elements

    def widgets(self) -> tuple[Widget, ...]:
        """The widgets of the current page, from its DOM: truth for benchmarks and tests, never for an agent."""
        with _device_errors():
            return tuple(_widget(*widget) for widget in self._page.evaluate("phone.widgets()"))

    def perform(self, action: Action) -> None:
        """Perform one action; see `Device.perform`.

        TYPE has no effect if no field has the focus. LONG_PRESS has no effect, because no page reacts to it and
        Chromium would click. OPEN_APP opens a site. RECENTS has no effect, because the phone has no list of recent
        apps. Raises DeviceLostError if Chromium exits, DeviceError if a script of the pages fails.
        """
        if action.is_status:
            self.status = action.kind
            return
        if action.kind is ActionKind.ANSWER:
            self.answer = action.text
            return
        with _device_errors():
            _EFFECTS[action.name](self, action)
            self._settle()

    def _open_site(self, name: str) -> None:
        if name in SITES:
            self._page.evaluate("(site) => phone.go(`#/${site}`)", name)

    def state(self) -> dict:
        """The state, only for checking tasks, never for an agent: {"cart": {id: count}, "orders": [{"items", "name",
        "delivery"}], "opened": [id], "settings": {key: value}}, with the IDs and keys of `make_world`."""
        with _device_errors():
            return self._page.evaluate("phone.state")

    def _read(self) -> tuple[UiElement, ...]:
        """Reads `activity` and the elements from the page."""
        self.activity = self._page.evaluate("phone.activity")
        self._elements = tuple(_element(*text) for text in self._page.evaluate("phone.texts()"))
        return self._elements

    def _tap(self, point: tuple[float, float]) -> None:
        clicks = self._page.evaluate("phone.clicks")
        tap(self._session, point)
        self._settle(clicks + 1)

    def _settle(self, clicks: int = 0) -> None:
        self._page.evaluate("(clicks) => phone.settled(clicks)", clicks)
        if self._faults:
            raise DeviceError(f"a script of the pages failed: {self._faults[0]}")


def _point(point_yx: tuple[float, float]) -> tuple[float, float]:
    """(y, x) in screen fractions → (x, y) in CSS pixels, limited to the viewport."""
    y, x = point_yx
    return (min(x * VIEWPORT["width"], VIEWPORT["width"] - 1), min(y * VIEWPORT["height"], VIEWPORT["height"] - 1))


def _element(text: str, left: float, top: float, right: float, bottom: float) -> UiElement:
    height, width = VIEWPORT["height"], VIEWPORT["width"]
    left, right = (min(max(0.0, x), width) / width for x in (left, right))
    top, bottom = (min(max(0.0, y), height) / height for y in (top, bottom))
    return UiElement((top, left, bottom - top, right - left), text)


def _widget(kind: str, on: bool | None, left: float, top: float, right: float, bottom: float) -> Widget:
    return Widget(kind, _element("", left, top, right, bottom).box, on)


@contextmanager
def _device_errors() -> Iterator[None]:
    """Converts Playwright's errors: to DeviceLostError if Chromium has exited, otherwise to DeviceError."""
    from playwright.sync_api import Error

    try:
        yield
    except Error as error:
        gone = "closed" in error.message or "crashed" in error.message
        words = error.message.splitlines()[0]
        raise (DeviceLostError if gone else DeviceError)(f"Chromium: {words}; start it again") from error


_EFFECTS: dict[str, Callable[[BrowserPhone, Action], object]] = {
    "tap": lambda phone, action: phone._tap(_point(action.touch_yx)),
    "swipe": lambda phone, action: swipe(phone._page, phone._session, _point(action.touch_yx), _point(action.lift_yx)),
    "type": lambda phone, action: phone._page.keyboard.insert_text(action.text),
    "enter": lambda phone, action: phone._page.keyboard.press("Enter"),
    "back": lambda phone, action: phone._page.evaluate("phone.back()"),
    "home": lambda phone, action: phone._page.evaluate("phone.home()"),
    "long_press": lambda phone, action: None,
    "open_app": lambda phone, action: phone._open_site(action.text.strip().casefold()),
    "wait": lambda phone, action: phone._page.wait_for_timeout(WAIT_MILLISECONDS),
    "recents": lambda phone, action: None,
}
"""`Action.name` → effect, for every action except the status actions and ANSWER."""
