"""News: one tab per section, and stories."""

import random
from collections.abc import Iterable
from functools import partial

from vlm_agent.simulator.app import App, Route
from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.drawing.page import SEARCH, SHARE, Page
from vlm_agent.simulator.drawing.theme import random_colour
from vlm_agent.simulator.drawing.tiles import Chips
from vlm_agent.simulator.drawing.widgets import Paragraph, Row, Title, Widget
from vlm_agent.simulator.words import CITIES, PRODUCTS, SECTIONS


class News(App):
    """Each section has a story from each of nine cities."""

    def fill(self, rng: random.Random) -> None:
        self.sections = rng.sample(SECTIONS, len(SECTIONS))
        self.at = rng.choice((0, len(SECTIONS) - 1))
        self.stories = {section: rng.sample(CITIES, 9) for section in SECTIONS}
        glyphs = list(PRODUCTS.values())
        self.pictures = {
            section: [(rng.choice(glyphs), random_colour(rng, 30, 190)) for _ in range(9)] for section in SECTIONS
        }
        self.saved: list[tuple[str, str]] = []
        self.three = rng.random() < 0.6

    def durable(self) -> Iterable[str]:
        return (f"saved {section} in {city}" for section, city in set(self.saved))

    def _home(self, route: Route) -> Page:
        section = self.sections[self.at]
        rows = [
            Row(
                f"{section} in {city}",
                "Two hours ago",
                picture=self.pictures[section][index],
                key=f"story:{city}",
                tall=8,
                on_tap=partial(self.push, "story", (section, city)),
            )
            for index, city in enumerate(self.stories[section])
        ]
        low = min(max(0, self.at - 1), len(self.sections) - 3)
        tabs = [
            (name, f"tab:{name}", partial(self.show, name), name == section) for name in self.sections[low : low + 3]
        ]
        return Page(rows, "News", actions=[SEARCH], tabs=tabs)

    def show(self, section: str) -> None:
        self.at = self.sections.index(section)
        self.route.scroll = 0.0

    def draw(self, canvas: Canvas, bottom: float) -> None:
        super().draw(canvas, bottom)
        if self.route.name == "home":
            for index, name in enumerate(self.sections):
                canvas.hide(f"section:{name}", "left" if index > self.at else "right")

    def _story(self, route: Route) -> Page:
        section, city = route.about
        chips = [(section, "chip", None, True), (city, "chip_city", None, False)]
        body: list[Widget] = [
            Title(f"{section} in {city}", 44, 17),
            Chips(chips),
            *(
                Paragraph(
                    f"People in {city} talk about nothing but {section.lower()} this week, and one sees why.", 12, 5
                )
                for _ in range(4)
            ),
        ]
        return Page(body, nav=self.up, actions=[("heart", "save", lambda: self.saved.append((section, city))), SHARE])
