"""Maps: a drawn city, search, places and directions."""

import random
from dataclasses import dataclass, replace
from functools import partial

from vlm_agent.simulator.app import App, Route
from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.drawing.page import STATUS_BAR, Page
from vlm_agent.simulator.drawing.theme import mix
from vlm_agent.simulator.drawing.widgets import Buttons, Field, Paragraph, Row, Title, Widget
from vlm_agent.simulator.words import CITIES, TOPICS


@dataclass
class Map(Widget):
    """Streets, parks and a river, with `pins` at (x, y) in fractions of the map."""

    seed: float
    tall: float
    pins: tuple[tuple[float, float], ...] = ()

    def draw(self, canvas: Canvas, y: float) -> None:
        rng = random.Random(self.seed)
        dark = canvas.theme.dark
        land, road, park, water = (
            ((52, 56, 62), (84, 88, 96), (44, 76, 58), (40, 70, 110))
            if dark
            else ((238, 236, 230), (255, 255, 255), (200, 228, 196), (168, 208, 240))
        )
        canvas.widget("image", canvas.rect(0, y, canvas.w, self.tall, land))
        for colour in (park, park, water):
            left, top = rng.uniform(-20, canvas.w - 40), y + rng.uniform(0, self.tall - 60)
            canvas.rect(left, top, rng.uniform(40, 90), rng.uniform(30, 60), colour, 10)
        for _ in range(7):
            canvas.rect(0, y + rng.uniform(0, self.tall - 6), canvas.w, rng.choice((2.0, 3.5, 6.0)), road)
            canvas.rect(rng.uniform(0, canvas.w), y, rng.choice((2.0, 3.5, 6.0)), self.tall, road)
        for x, down in self.pins:
            canvas.glyph("pin", x * canvas.w, y + down * self.tall, 22, mix((220, 50, 40), (0, 0, 0), 0.05))


class Maps(App):
    def fill(self, rng: random.Random) -> None:
        self.seed = rng.random()
        self.below = rng.random() < 0.5
        self.recent = rng.sample(CITIES, 3)

    def _home(self, route: Route) -> Page:
        field = Field("search", "Search here", "", False, self.new_search, "pin", trail_glyph="mic")
        page = Page([Map(self.seed, 448 - STATUS_BAR - 40)], bar=False, fab=("compass", "locate", None))
        return replace(page, foot=[field]) if self.below else replace(page, top=[field])

    def suggestions(self, query: str) -> list[str]:
        rng = random.Random(f"{self.seed} {query.lower()}")
        places = [f"{topic.capitalize()} in {city}" for topic in TOPICS for city in CITIES]
        near = [place for place in places if query.lower() in place.lower()]
        others = [place for place in places if {*place.lower().split(" in ")} & {*query.lower().split()}]
        queries = list(dict.fromkeys(near[:1] + rng.sample(others, min(5, len(others)))))
        rng.shuffle(queries)
        return queries

    def _search(self, route: Route) -> Page:
        query = self.fields.get("query", "")
        field = self.field("query", "Search here", glyph="pin")
        texts = self.suggestions(query) if query.strip() else self.recent
        rows = [Row(text, lead="pin", key=f"place:{text.lower()}", on_tap=partial(self.search, text)) for text in texts]
        return Page(rows, bar=False, top=[field])

    def search(self, text: str) -> None:
        self.swap("place", text)

    def _place(self, route: Route) -> Page:
        rng = random.Random(f"{self.seed} {str(route.about).lower()}")
        pins = tuple((rng.uniform(0.15, 0.85), rng.uniform(0.2, 0.8)) for _ in range(3))
        field = Field("search", "", str(route.about), False, self.new_search, "pin")
        buttons = [
            ("Directions", "directions", lambda: self.push("way", route.about), True),
            ("Save", "save", None, False),
        ]
        card: list[Widget] = [
            Title(str(route.about), 32, 14),
            Paragraph("4.5 stars · Open now", 10.5, 1),
            Buttons(buttons, "left" if self.below else "right"),
        ]
        return Page([Map(rng.random(), 290, pins)], bar=False, top=[field], foot=card)

    def _way(self, route: Route) -> Page:
        rows = [
            Row(f"{word} for {5 * index + 3} minutes", lead=glyph)
            for index, (word, glyph) in enumerate((("Walk", "person"), ("Drive", "car"), ("Fly", "plane")))
        ]
        return Page([Map(self.seed + 1, 170, ((0.2, 0.7), (0.8, 0.2))), *rows], str(route.about), nav=self.up)
