"""The app store: search, an app's page with install, open, update and uninstall, and a list of updates."""

import random
from collections.abc import Iterable
from functools import partial

from vlm_agent.simulator.app import App, Route
from vlm_agent.simulator.apps.launcher import Launcher
from vlm_agent.simulator.drawing.page import DOTS, SHARE, Page
from vlm_agent.simulator.drawing.tiles import Carousel, Cell, Chips
from vlm_agent.simulator.drawing.widgets import Buttons, Field, Header, Paragraph, Row, Space, Title, Widget
from vlm_agent.simulator.words import STORE_APPS


class Store(App):
    def fill(self, rng: random.Random) -> None:
        names = list(STORE_APPS)
        self.featured = rng.sample(names, 8)
        self.top = rng.sample(names, len(names))
        self.updates = {name for name in self.phone.installed if rng.random() < 0.4}
        self.stars = {name: f"{rng.uniform(3, 5):.1f}" for name in STORE_APPS}
        self.installs: list[str] = []
        self.removals: list[str] = []
        self.updated: list[str] = []
        self.seed = rng.random()
        self.tabs_below = rng.random() < 0.6
        self.buttons_low = rng.random() < 0.5
        self.search_top = rng.random() < 0.6

    def durable(self) -> Iterable[str]:
        return (f"update of {name} waits" for name in self.updates)

    def install(self, name: str) -> None:
        self.phone.installed.append(name)
        self.installs.append(name)

    def uninstall(self, name: str) -> None:
        self.phone.installed.remove(name)
        self.phone.recents = [other for other in self.phone.recents if other != name]
        self.phone.the(Launcher).forget(name)
        self.removals.append(name)
        self.pop()

    def update(self, name: str) -> None:
        self.updates.discard(name)
        self.updated.append(name)

    def show(self, name: str) -> None:
        self.push("app", name)

    def search(self, text: str) -> None:
        self.swap("results", text)

    def _swap(self, tab: str) -> None:
        self.phone.focus = None
        self.routes[-1] = Route(tab)

    def _tabs(self, at: str) -> list:
        return [
            (label, f"tab:{label}", partial(self._swap, route), route == at)
            for label, route in (("Apps", "home"), ("Charts", "charts"), ("Updates", "updates"))
        ]

    def _row(self, name: str, number: str = "") -> Row:
        return Row(
            f"{number}{name}",
            f"{self.stars[name]} stars",
            app=STORE_APPS[name],
            key=f"show:{name}",
            on_tap=lambda: self.show(name),
            tall=4,
        )

    def _home(self, route: Route) -> Page:
        cells = [
            Cell(name, f"show:{name}", partial(self.show, name), STORE_APPS[name], second=self.stars[name])
            for name in self.featured
        ]
        chips = [
            (label, f"chip:{label}", None, label == "For you") for label in ("For you", "Top", "Family", "Games", "New")
        ]
        body = [
            Chips(chips, route.strips.get("chips", 0.0), "chips"),
            Header("Featured", 12.5, False),
            Carousel(cells, "featured", route.strips.get("featured", 0.0), 70, 76),
            Header("You may like", 12.5, False),
            *(self._row(name) for name in self.top[:9]),
        ]
        return self._root("home", body)

    def _root(self, at: str, body: list) -> Page:
        tabs = self._tabs(at)
        if self.search_top:
            field = [Field("search", "Search apps", "", False, self.new_search)]
            return Page(body, bar=False, top=field, tabs=tabs, tabs_below=self.tabs_below)
        actions = [("search", "search", self.new_search), DOTS]
        return Page(body, "Store", actions=actions, tabs=tabs, tabs_below=self.tabs_below)

    def _charts(self, route: Route) -> Page:
        return self._root("charts", [Header("Top free", 12.5, False), *(self._row(name) for name in self.top)])

    def _updates(self, route: Route) -> Page:
        rows = [
            Row(
                name,
                "Update available" if name in self.updates else "Up to date",
                app=self.phone.catalogue[name],
                key=f"installed:{name}",
                on_tap=partial(self.show, name) if name in STORE_APPS else None,
                trail="Update" if name in self.updates else "",
                trail_key=f"update:{name}" if name in self.updates else "",
                on_trail=partial(self.update, name),
            )
            for name in sorted(self.phone.installed)
        ]
        return self._root("updates", [Header(f"{len(rows)} apps installed", 12, False), *rows])

    def suggestions(self, query: str) -> list[str]:
        rng = random.Random(f"{self.seed} {query.lower()}")
        near = [name for name in STORE_APPS if name.lower() != query.lower()]
        names = rng.sample(near, 5) + [name for name in STORE_APPS if name.lower() == query.lower()]
        rng.shuffle(names)
        return names

    def _search(self, route: Route) -> Page:
        query = self.fields.get("query", "")
        field = self.field("query", "Search apps")
        names = self.suggestions(query) if query.strip() else self.top[:3]
        rows = [
            Row(name, "App", app=STORE_APPS[name], key=f"show:{name}", on_tap=partial(self.swap, "app", name))
            for name in names
        ]
        return Page(rows, bar=False, top=[field])

    def _results(self, route: Route) -> Page:
        names = self.suggestions(str(route.about))
        field = Field("search", "Search apps", str(route.about), False, self.new_search)
        return Page(
            [Header(f"Results for {route.about}", 12, False), *(self._row(name) for name in names)],
            bar=False,
            top=[field],
        )

    def _buttons(self, name: str) -> Buttons:
        if name not in self.phone.installed:
            items = [("Install", "install", lambda: self.install(name), True)]
        else:
            items = [
                ("Uninstall", "uninstall", lambda: self.push("confirm", name), False),
                ("Open", "open", lambda: self.phone.open(name), True),
            ]
        return Buttons(items, "left" if self.buttons_low else "centre", 42)

    def _app(self, route: Route) -> Page:
        name = str(route.about)
        head: list[Widget] = [Row(name, f"{name} makers", app=STORE_APPS[name], bold=True, tall=18)]
        facts: list[Widget] = [
            Row(f"{self.stars[name]} stars", "Rated by many people", "star", (240, 180, 30)),
            Paragraph(f"{name} is the best way to enjoy {name.lower()} every day, at home or on a journey.", 11, 3),
        ]
        cells = [Cell(f"Screen {index}", f"shot:{index}", None, picture=STORE_APPS[name]) for index in range(1, 5)]
        shots = Carousel(cells, "shots", route.strips.get("shots", 0.0), 74, 118)
        button = self._buttons(name)
        body = [*head, *facts, shots, button] if self.buttons_low else [*head, button, *facts, shots]
        body += [Header("Similar apps"), *(self._row(other) for other in self.suggestions(name)[:4])]
        return Page(body, nav=self.up, actions=[("search", "search", self.new_search), SHARE])

    def _confirm(self, route: Route) -> Page:
        name = str(route.about)
        page = self._app(route)
        items = [("Cancel", "cancel", self.pop, False), ("OK", "ok", lambda: self.uninstall(name), False)]
        buttons = Buttons(items, "left" if self.buttons_low else "right")
        text = Paragraph(f"Do you want to uninstall {name}?", 11, 2)
        page.dialog = [Title("Uninstall", 30, 15), text, Space(4), buttons]
        page.sheet = self.tabs_below
        return page
