"""The browser: an address field with suggestions, a search engine, sites and web shops."""

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from vlm_agent.simulator.app import App, Route
from vlm_agent.simulator.apps.shop import Shop
from vlm_agent.simulator.drawing.page import DOTS, MENU, SHARE, Page
from vlm_agent.simulator.drawing.tiles import Cell, Chips, grid
from vlm_agent.simulator.drawing.widgets import Field, Header, Paragraph, Row, Space, Title, suggestion
from vlm_agent.simulator.words import CITIES, SHOPS, SITES, TOPICS

GLYPHS = [
    "globe", "star", "heart", "leaf", "bank", "camera", "book", "flower", "compass", "puzzle", "bulb", "drop", "fork",
    "bag",
]  # fmt: skip


class Browser(App):
    def fill(self, rng: random.Random) -> None:
        sites = SHOPS | SITES
        names = list(sites)
        rng.shuffle(names)
        glyphs = rng.sample(GLYPHS, len(GLYPHS))
        self.icons = {name: (glyphs[index], sites[name]) for index, name in enumerate(names)}
        self.tiles = names[: rng.choice((4, 8, 8))]
        self.stories = [f"{rng.choice(TOPICS)} in {rng.choice(CITIES)}" for _ in range(6)]
        self.shops: dict[str, Shop] = {}
        self.seed = rng.random()
        self.field_below = rng.random() < 0.35
        self.rows_below = rng.random() < 0.5

    def durable(self) -> Iterable[str]:
        return (f"{shop.name}: {line}" for shop in self.shops.values() for line in shop.durable())

    @property
    def shop(self) -> Shop | None:
        """The shop that was opened last among the open pages."""
        sites = (str(route.about) for route in reversed(self.routes) if route.name == "shop_home")
        return next(map(self.shop_named, sites), None)

    def shop_named(self, name: str) -> Shop:
        if name not in self.shops:
            self.shops[name] = Shop(self, name, random.Random(f"{self.seed} {name}"))
        return self.shops[name]

    def page(self) -> Page:
        if (shop := self.shop) is not None and self.route.name.startswith("shop_"):
            page = shop.page(self.route)
            return replace(page, bar_colour=SHOPS[shop.name], top=[self._address(shop.name), *page.top])
        return super().page()

    def _address(self, site: str) -> Field:
        return Field("address", "", f"{site.lower()}.com", False, self.new_search, "lock", 32)

    def visit(self, site: str) -> None:
        self.push("shop_home" if site in SHOPS else "site", site)

    def search(self, query: str) -> None:
        self.pop()
        names = {name.lower(): name for name in self.icons}
        if query.lower() in names:
            self.visit(names[query.lower()])
        else:
            self.push("results", query)

    def entered(self, key: str) -> None:
        if key == "shop_query" and self.shop is not None and (text := self.fields.get(key, "").strip()):
            self.shop.search(text)
        else:
            super().entered(key)

    def _home(self, route: Route) -> Page:
        cells = [Cell(name, f"site:{name}", partial(self.visit, name), app=self.icons[name]) for name in self.tiles]
        tiles = grid(cells, 4, 60, 28)
        stories = [
            Row(story[0].upper() + story[1:], "Read more", "newspaper", key=f"story:{index}")
            for index, story in enumerate(self.stories)
        ]
        field = [Field("address", "Search or type address", "", False, self.new_search)]
        middle = [Space(24), *field, *tiles] if self.rows_below else tiles
        body = [*middle, Header("Stories"), *stories]
        page = Page(body, "Browser", actions=[DOTS])
        if self.rows_below:
            return page
        return replace(page, foot=field) if self.field_below else replace(page, top=field)

    def suggestions(self, query: str) -> list[str]:
        """At most four similar queries (other cities, other topics) and, with probability 0.9, the query; shuffled."""
        rng = random.Random(f"{self.seed} {query.lower()}")
        text = query.lower()
        city = next((city for city in CITIES if text.endswith(f" {city.lower()}")), None)
        topic = next((topic for topic in TOPICS if text.startswith(topic)), None)
        if city and topic:
            near = [f"{topic} in {other.lower()}" for other in rng.sample(CITIES, 3)]
            near += [f"{other} in {city.lower()}" for other in rng.sample(TOPICS, 3)]
        else:
            near = [f"{text} {topic}" for topic in rng.sample(TOPICS, 4)]
        near = [item for item in dict.fromkeys(near) if item != text]
        queries = [*near[:4], text] if rng.random() < 0.9 else near[:4]
        rng.shuffle(queries)
        return queries

    def _search(self, route: Route) -> Page:
        query = self.fields.get("query", "")
        field = self.field("query", "Search or type address", tall=44)
        texts = self.suggestions(query) if query.strip() else self.stories[:3]
        glyph = "search" if query.strip() else "history"
        return Page([suggestion(text, glyph, partial(self.search, text)) for text in texts], bar=False, top=[field])

    def _results(self, route: Route) -> Page:
        query = str(route.about)
        rng = random.Random(f"{self.seed} results {query.lower()}")
        field = Field("address", "", query, False, self.new_search)
        names = rng.sample(list(SITES), len(SITES))
        kinds = ("All", "News", "Images", "Videos", "Maps")
        body: list = [Chips([(label, f"kind:{label}", None, label == "All") for label in kinds])]
        body += self._answer(query, rng)
        text = f"{query.capitalize()} – all you need to know"
        for index, name in enumerate(names):
            visit = partial(self.visit, name)
            body += [
                Row(name, text, app=self.icons[name], key=f"site:{name}", on_tap=visit, bold=True, tall=4),
                Space(6, line=True),
            ]
            if index == 1 and rng.random() < 0.5:
                body += [
                    Header("People also ask", 12, False),
                    *(Row(f"{topic.capitalize()} today?", trail_glyph="down") for topic in rng.sample(TOPICS, 3)),
                ]
        return Page(body, bar=False, top=[field])

    def _answer(self, query: str, rng: random.Random) -> list:
        if "weather" in query.lower():
            weather = f"{rng.randint(-4, 34)}° {rng.choice(('sunny', 'cloudy', 'rain', 'windy'))}"
            return [Title(weather, 40, 18), Paragraph(query.capitalize(), 11, 1)]
        return [Paragraph(f"About {rng.randint(2, 900)} pages were found.", 10.5, 1)]

    def _site(self, route: Route) -> Page:
        name = str(route.about)
        rng = random.Random(f"{self.seed} site {name}")
        colour = SITES[name]
        rows = []
        for _ in range(8):
            title = f"{rng.choice(TOPICS).capitalize()} in {rng.choice(CITIES)}"
            rows.append(Row(title, "Continue reading", picture=(rng.choice(GLYPHS), colour), tall=8))
        top = [self._address(name)]
        return Page(
            [Title(f"Welcome to {name}", 40, 16), *rows], name, nav=MENU, bar_colour=colour, top=top, actions=[SHARE]
        )
