"""What every app of the simulated phone shares: a stack of pages, fields to type in, scrolling."""

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vlm_agent.devices.simulated_phone.canvas import Canvas
from vlm_agent.devices.simulated_phone.page import Page, draw_page

if TYPE_CHECKING:
    from vlm_agent.devices.simulated_phone.phone import SimulatedPhone


@dataclass(slots=True)
class Route:
    """A page on the stack: its name, what it shows, how far it and its strips are scrolled (units)."""

    name: str
    about: object = None
    scroll: float = 0.0
    limit: float = 0.0
    strips: dict[str, float] = field(default_factory=dict)


class App:
    """Subclasses describe their pages in `page()`; state lives in plain attributes."""

    home = "home"

    def __init__(self, phone: "SimulatedPhone", name: str, rng: random.Random):
        self.phone = phone
        self.name = name
        self.rng = rng
        self.fields: dict[str, str] = {}
        self.routes = [Route(self.home)]
        self.fill(rng)

    def fill(self, rng: random.Random) -> None:
        """Make up the app's contents."""

    @property
    def route(self) -> Route:
        return self.routes[-1]

    def page(self) -> Page:
        """The page of the route; by default what the method of its name, `_home` for `home`, makes of it."""
        return getattr(self, f"_{self.route.name}")(self.route)

    def draw(self, canvas: Canvas, bottom: float) -> None:
        route = self.route
        route.limit = draw_page(canvas, self.page(), route.scroll, bottom)
        route.scroll = min(route.scroll, route.limit)

    def push(self, name: str, about: object = None) -> None:
        self.phone.focus = None
        self.routes.append(Route(name, about))

    def pop(self) -> None:
        self.phone.focus = None
        if len(self.routes) > 1:
            self.routes.pop()

    def to_root(self) -> None:
        self.phone.focus = None
        self.routes = [Route(self.home)]

    def back(self) -> bool:
        """Whether the app had somewhere to go back to."""
        if len(self.routes) == 1:
            return False
        self.pop()
        return True

    def focus(self, key: str) -> None:
        """Open the keyboard for a field; the first typing replaces what it holds, as if all of it were selected."""
        self.phone.focus = key
        self.phone.replacing = True

    def typed(self, key: str) -> None:
        """Called after `fields[key]` has changed."""

    def entered(self, key: str) -> None:
        """Called when enter is pressed while `key` has the focus."""

    def activity(self) -> str:
        return f"org.{self.name.lower().replace(' ', '')}/.{self.route.name.title().replace('_', '')}"

    def swiped(self, canvas: Canvas, direction: str, touch_y: float, length: float) -> None:
        """A swipe of `length` units that began at `touch_y` (pixels)."""
        route = self.route
        if direction in ("up", "down"):
            moved = route.scroll + (length if direction == "up" else -length)
            route.scroll = min(max(0.0, moved), route.limit)
            return
        for strip in reversed(canvas.strips):
            if strip.top <= touch_y < strip.bottom and strip.limit > 0:
                moved = route.strips.get(strip.name, 0.0) + (length if direction == "left" else -length)
                route.strips[strip.name] = min(max(0.0, moved), strip.limit)
                return
        self.sideways(direction)

    def sideways(self, direction: str) -> None:
        """A swipe left or right that no strip took: the neighbouring tab, where there are tabs."""
        tabs = self.page().tabs
        at = next((index for index, tab in enumerate(tabs) if tab[3]), None)
        to = None if at is None else at + (1 if direction == "left" else -1)
        if to is not None and 0 <= to < len(tabs):
            tabs[to][2]()
