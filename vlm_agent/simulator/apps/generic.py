"""Apps without their own file: one plausible page that can be scrolled."""

import random

from vlm_agent.simulator.app import App
from vlm_agent.simulator.drawing.page import DOTS, MENU, SEARCH, Page
from vlm_agent.simulator.drawing.tiles import Cell, grid
from vlm_agent.simulator.drawing.widgets import Header, Paragraph, Row, Title, Widget
from vlm_agent.simulator.words import CITIES, COLOURS, LABELS, PRODUCTS


class GenericApp(App):
    def fill(self, rng: random.Random) -> None:
        glyphs = list(PRODUCTS.values())
        self.layout = rng.choice(("list", "grid", "cards"))
        self.items = [
            (rng.choice(LABELS).capitalize(), rng.choice(CITIES), rng.choice(glyphs), rng.choice([*COLOURS.values()]))
            for _ in range(12)
        ]

    def page(self) -> Page:
        glyph, colour = self.phone.catalogue[self.name]
        body: list[Widget] = [
            Title(f"{self.name}", 44, 20),
            Paragraph("Good to see you again", 11, 1),
            Header("Recent"),
        ]
        if self.layout == "grid":
            cells = [
                Cell(title, f"item:{index}", None, picture=(kind, tint), second=place)
                for index, (title, place, kind, tint) in enumerate(self.items)
            ]
            body += grid(cells, 3, 92)
        elif self.layout == "cards":
            body.extend(Row(title, place, picture=(kind, tint), tall=16) for title, place, kind, tint in self.items)
        else:
            body.extend(Row(title, place, glyph, colour, trail_glyph="forward") for title, place, _, _ in self.items)
        return Page(body, self.name, nav=MENU, bar_colour=colour, actions=[SEARCH, DOTS])
