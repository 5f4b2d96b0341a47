"""Photos: one album per city, and a viewer in which swipes sideways change the photo."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from vlm_agent.simulator.app import App, Route
from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.drawing.page import DOTS, SEARCH, SHARE, Page
from vlm_agent.simulator.drawing.theme import Colour, mix, random_colour
from vlm_agent.simulator.drawing.tiles import Cell, grid
from vlm_agent.simulator.drawing.widgets import Space, Widget
from vlm_agent.simulator.words import CITIES, PRODUCTS


@dataclass
class Photo(Widget):
    """One picture over the width of the screen."""

    what: tuple[str, Colour]
    tall: float = 250.0

    def draw(self, canvas: Canvas, y: float) -> None:
        glyph, colour = self.what
        canvas.widget("image", canvas.rect(0, y, canvas.w, self.tall, mix(colour, (255, 255, 255), 0.6)))
        canvas.rect(0, y + self.tall * 0.66, canvas.w, self.tall * 0.34, mix(colour, (60, 60, 40), 0.5))
        canvas.glyph(glyph, canvas.w / 2, y + self.tall * 0.55, 110, colour, note=False)


class Photos(App):
    def fill(self, rng: random.Random) -> None:
        self.albums = rng.sample(CITIES, 8)
        glyphs = list(PRODUCTS.values())
        self.pictures = {
            city: [(rng.choice(glyphs), random_colour(rng, 40, 200)) for _ in range(6)] for city in self.albums
        }
        self.liked: list[tuple[str, int]] = []

    def durable(self) -> Iterable[str]:
        return (f"liked {city} {number + 1}" for city, number in set(self.liked))

    def _home(self, route: Route) -> Page:
        cells = [
            Cell(
                city,
                f"album:{city}",
                partial(self.push, "photo", [city, 0]),
                picture=self.pictures[city][0],
                second="6 photos",
            )
            for city in self.albums
        ]
        return Page([*grid(cells, 2, 112), Space(8)], "Albums", actions=[SEARCH, DOTS])

    def view(self, city: str, number: int) -> None:
        self.routes = [Route("home")]
        self.push("photo", [city, number])

    def _photo(self, route: Route) -> Page:
        city, number = route.about
        actions = [("heart", "like", lambda: self.liked.append((city, number))), SHARE, ("trash", "delete", None)]
        return Page(
            [Space(26), Photo(self.pictures[city][number])], f"{city} {number + 1} of 6", nav=self.up, actions=actions
        )

    def sideways(self, direction: str) -> None:
        if self.route.name == "photo":
            city, number = self.route.about
            self.route.about = [city, min(max(0, number + (1 if direction == "left" else -1)), 5)]
