"""The base class of the simulated phone's apps: a stack of pages, text fields, scrolling."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.drawing.page import Page, draw_page
from vlm_agent.simulator.drawing.widgets import Field, IconButton

if TYPE_CHECKING:
    from vlm_agent.simulator.phone import SimulatedPhone


def package_of(app: str) -> str:
    """The Android package name of an app."""
    return f"org.{app.lower().replace(' ', '')}"


@dataclass(slots=True)
class Route:
    """A page on the stack. `about` is the page's subject; its type depends on the page. `scroll`, its `limit` and the
    offsets of `strips` are in canvas units."""

    name: str
    about: Any = None
    scroll: float = 0.0
    limit: float = 0.0
    strips: dict[str, float] = field(default_factory=dict)


class App:
    """Subclasses return their pages from `page()` and keep their state in plain attributes.

    `fields`: key → content of a text field.
    """

    home = "home"

    def __init__(self, phone: "SimulatedPhone", name: str, rng: random.Random) -> None:
        self.phone = phone
        self.name = name
        self.fields: dict[str, str] = {}
        self.routes = [Route(self.home)]
        self.fill(rng)

    def fill(self, rng: random.Random) -> None:
        """Create the app's contents from `rng`."""

    def durable(self) -> Iterable[str]:
        """A line for each thing that lasts, such as an alarm or a product in a cart, as often as there is one.

        Pages, scrolling, contents of fields and what has been read do not last. By default nothing.
        """
        return ()

    @property
    def route(self) -> Route:
        return self.routes[-1]

    def page(self) -> Page:
        """The page of the current route; by default, the method with the route's name returns it (`_home` for
        `home`)."""
        return getattr(self, f"_{self.route.name}")(self.route)

    def draw(self, canvas: Canvas, bottom: float) -> None:
        """Draw the current page down to `bottom` (units)."""
        route = self.route
        route.limit = draw_page(canvas, self.page(), route.scroll, bottom)
        route.scroll = min(route.scroll, route.limit)

    def push(self, name: str, about: Any = None) -> None:
        """Open a page on top of the stack and close the keyboard."""
        self.phone.focus = None
        self.routes.append(Route(name, about))

    def pop(self) -> None:
        """Close the top page, unless it is the only one, and the keyboard."""
        self.phone.focus = None
        if len(self.routes) > 1:
            self.routes.pop()

    def swap(self, name: str, about: Any = None) -> None:
        """Open a page in place of the top one, unless that is the only one."""
        self.pop()
        self.push(name, about)

    @property
    def up(self) -> IconButton:
        """The arrow in the app bar that closes the top page."""
        return "back", "up", self.pop

    def to_root(self) -> None:
        """Reset the stack to the first page."""
        self.phone.focus = None
        self.routes = [Route(self.home)]

    def back(self) -> bool:
        """Go back one page; returns False on the first page."""
        if len(self.routes) == 1:
            return False
        self.pop()
        return True

    def field(self, key: str, hint: str, **look: Any) -> Field:
        """A text field of this app that opens the keyboard."""
        return Field(key, hint, self.fields.get(key, ""), self.phone.focus == key, lambda: self.focus(key), **look)

    def focus(self, key: str) -> None:
        """Open the keyboard for a field. The first typed text replaces the content, as if it were selected."""
        self.phone.focus = key
        self.phone.replacing = True

    def new_search(self, page: str = "search", key: str = "query") -> None:
        """Open the app's page for a search, with an empty query in the field `key`."""
        self.push(page)
        self.fields[key] = ""
        self.focus(key)

    def search(self, text: str) -> None:
        """Open the results of a search; by default no effect."""

    def entered(self, key: str) -> None:
        """Called when enter is pressed while `key` has the focus; by default searches for its content."""
        if text := self.fields.get(key, "").strip():
            self.search(text)

    def activity(self) -> str:
        """`package/activity` of the current page."""
        return f"{package_of(self.name)}/.{self.route.name.title().replace('_', '')}"

    def swiped(self, canvas: Canvas, direction: str, touch_y: float, length: float) -> None:
        """Handle a swipe of `length` units that started at `touch_y` (pixels)."""
        route = self.route
        if direction in ("up", "down"):
            offset = route.scroll + (length if direction == "up" else -length)
            route.scroll = min(max(0.0, offset), route.limit)
            return
        for strip in reversed(canvas.strips):
            if strip.top <= touch_y < strip.bottom and strip.limit > 0:
                offset = route.strips.get(strip.name, 0.0) + (length if direction == "left" else -length)
                route.strips[strip.name] = min(max(0.0, offset), strip.limit)
                return
        self.sideways(direction)

    def sideways(self, direction: str) -> None:
        """Handle a swipe left or right outside strips: open the adjacent tab, if the page has tabs."""
        tabs = self.page().tabs
        at = next((index for index, tab in enumerate(tabs) if tab[3]), None)
        to = None if at is None else at + (1 if direction == "left" else -1)
        on_tap = tabs[to][2] if to is not None and 0 <= to < len(tabs) else None
        if on_tap is not None:
            on_tap()
