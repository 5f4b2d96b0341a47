"""A phone in a browser: Chromium under Playwright, with a small shop and settings that look as real ones do.

with BrowserPhone("shop", seed=7) as phone:
    screen = phone.screenshot()
    phone.perform(Action.tap(0.5, 0.5))

Needs `pip install vlm-agent[browser]` and a Chromium. Nothing is fetched: the pages lie in `browser_pages/`, and every
request for anything else is refused and counted. It draws no keyboard and no bars of the system; text goes to the field
that was tapped. Letters that Roboto lacks are drawn with the computer's own fonts, so screens with them may differ
between computers.
"""

import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
from PIL import Image

from vlm_agent.devices import browser_touch
from vlm_agent.devices.browser_chromium import SCALE, VIEWPORT, chromium, open_page
from vlm_agent.devices.browser_tasks import SITES
from vlm_agent.devices.browser_world import make_world
from vlm_agent.devices.errors import DeviceError, DeviceLostError
from vlm_agent.episodes import Action, ActionKind, UiElement


class BrowserPhone:
    """`site` is what is open at the start, "shop" or "settings"; None is the home screen. `seed` makes the world.

    One at a time in a thread, and none within a running asyncio loop: Playwright's rule. Raises NoBrowserError when
    Playwright or Chromium is missing, DeviceLostError when Chromium ends midway.
    """

    def __init__(self, site: str | None = None, seed: int = 0):
        self.status: ActionKind | None = None
        self.activity = ""
        self.blocked: list[str] = []
        """The addresses that were asked for since the last reset and are none of the pages'."""
        self._elements: tuple[UiElement, ...] | None = None
        self._faults: list[str] = []
        self._page = None
        with ExitStack() as stack:
            self._browser = stack.enter_context(chromium())
            self.reset(site, seed)
            self._open = stack.pop_all()

    def __enter__(self) -> "BrowserPhone":
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def close(self) -> None:
        self._open.close()

    def reset(self, site: str | None = None, seed: int = 0) -> None:
        """As it was when it was new: another browser context, of the former one nothing is left."""
        if site is not None and site not in SITES:
            raise ValueError(f"there is no site {site!r}; there are {' and '.join(SITES)}")
        with _told():
            if self._page is not None:
                self._page.context.close()
            self.blocked, self._faults, self.status, self._elements = [], [], None, None
            self._page = open_page(self._browser, make_world(seed), self.blocked, self._faults)
            self._session = self._page.context.new_cdp_session(self._page)
            if site is not None:
                self._page.evaluate("(site) => phone.go(`#/${site}`)", site)
            self._settle()

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) in pixels: 2402 × 1082."""
        return tuple(int(np.ceil(VIEWPORT[side] * SCALE)) for side in ("height", "width"))

    def screenshot(self) -> np.ndarray:
        """uint8 (height, width, 3), RGB; `activity`, "shop/cart" say, is then what is on it."""
        with _told():
            picture = self._page.screenshot()
            self._read()
        with Image.open(io.BytesIO(picture)) as image:
            return np.array(image.convert("RGB"))

    def elements(self) -> tuple[UiElement, ...]:
        """Texts, fields (what is in them, or their hint) and named buttons on the last screenshot, all as TEXT."""
        if self._elements is None:
            with _told():
                self._read()
        return self._elements

    def perform(self, action: Action) -> None:
        """Do the action; a status action is only noted. Text goes in as it is, and nowhere where no field has focus."""
        if action.is_status:
            self.status = action.kind
            return
        with _told():
            if action.is_tap:
                self._tap(_point(action.touch_yx))
            elif action.is_swipe:
                browser_touch.swipe(self._page, self._session, _point(action.touch_yx), _point(action.lift_yx))
            elif action.kind is ActionKind.TYPE:
                self._page.keyboard.insert_text(action.text)
            elif action.kind is ActionKind.PRESS_ENTER:
                self._page.keyboard.press("Enter")
            else:
                self._page.evaluate("(button) => phone[button]()", action.name)
            self._settle()

    def state(self) -> dict:
        """For the harness, never for an agent: {"cart": {id: count}, "orders": [{"items", "name", "delivery"}],
        "opened": [id], "settings": {key: value}}, as `browser_world` names them."""
        with _told():
            return self._page.evaluate("phone.state")

    def _read(self) -> None:
        self.activity = self._page.evaluate("phone.activity")
        self._elements = tuple(_element(*text) for text in self._page.evaluate("phone.texts()"))

    def _tap(self, point: tuple[float, float]) -> None:
        clicks = self._page.evaluate("phone.clicks")
        browser_touch.tap(self._session, point)
        self._settle(clicks + 1)

    def _settle(self, clicks: int = 0) -> None:
        self._page.evaluate("(clicks) => phone.settled(clicks)", clicks)
        if self._faults:
            raise DeviceError(f"a script of the pages has failed: {self._faults[0]}")


def _point(point_yx: tuple[float, float]) -> tuple[float, float]:
    """(x, y) in CSS pixels, within the window."""
    y, x = point_yx
    return (min(x * VIEWPORT["width"], VIEWPORT["width"] - 1), min(y * VIEWPORT["height"], VIEWPORT["height"] - 1))


def _element(text: str, left: float, top: float, right: float, bottom: float) -> UiElement:
    height, width = VIEWPORT["height"], VIEWPORT["width"]
    left, right = (min(max(0.0, x), width) / width for x in (left, right))
    top, bottom = (min(max(0.0, y), height) / height for y in (top, bottom))
    return UiElement((top, left, bottom - top, right - left), text)


@contextmanager
def _told() -> Iterator[None]:
    """Playwright's errors, told as a phone's."""
    from playwright.sync_api import Error

    try:
        yield
    except Error as error:
        gone = "closed" in error.message or "crashed" in error.message
        words = error.message.splitlines()[0]
        raise (DeviceLostError if gone else DeviceError)(f"Chromium: {words}; start it again") from error
