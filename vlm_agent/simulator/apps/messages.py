"""Messages and contacts: conversations with people, and calling them."""

import random
from collections.abc import Iterable
from functools import partial

from vlm_agent.simulator.app import App, Route
from vlm_agent.simulator.drawing.page import DOTS, SEARCH, Page
from vlm_agent.simulator.drawing.theme import ACCENTS
from vlm_agent.simulator.drawing.widgets import Bubbles, Buttons, Paragraph, Row, Space, Title, Widget
from vlm_agent.simulator.words import LABELS, NAMES


class Messages(App):
    def fill(self, rng: random.Random) -> None:
        self.people = rng.sample(NAMES, rng.randint(9, 14))
        self.colours = {name: rng.choice(ACCENTS) for name in NAMES}
        self.talks = {
            name: [(rng.choice(LABELS), rng.random() < 0.4) for _ in range(rng.randint(1, 5))] for name in NAMES
        }
        self.sent: list[tuple[str, str]] = []

    def durable(self) -> Iterable[str]:
        return (f"sent to {name}: {text.strip().casefold()}" for name, text in self.sent)

    def _home(self, route: Route) -> Page:
        rows = [
            Row(
                name,
                self.talks[name][-1][0],
                name[0],
                self.colours[name],
                key=f"talk:{name}",
                on_tap=partial(self.talk, name),
                tall=6,
            )
            for name in self.people
        ]
        return Page(rows, "Messages", actions=[SEARCH, DOTS], fab=("plus", "new", None))

    def talk(self, name: str) -> None:
        self.fields["message"] = ""
        self.push("talk", name)

    def _talk(self, route: Route) -> Page:
        name = str(route.about)
        send = {"trail_glyph": "send", "trail_key": "send", "on_trail": partial(self.send, name)}
        field = self.field("message", "Text message", glyph="plus", **send)
        return Page(
            [Bubbles(self.talks[name])], name, nav=self.up, actions=[("phone", "call", None), DOTS], foot=[field]
        )

    def send(self, name: str) -> None:
        text = self.fields.get("message", "")
        if text.strip():
            self.talks[name] = [*self.talks[name][-5:], (text, True)]
            self.sent.append((name, text))
            self.fields["message"] = ""
            self.phone.focus = None


class Contacts(App):
    def fill(self, rng: random.Random) -> None:
        self.colours = {name: rng.choice(ACCENTS) for name in NAMES}
        self.calls: list[str] = []
        self.favourites: set[str] = set(rng.sample(NAMES, 3))
        self.low = rng.random() < 0.5

    def durable(self) -> Iterable[str]:
        return (*(f"called {name}" for name in self.calls), *(f"favourite {name}" for name in self.favourites))

    def _home(self, route: Route) -> Page:
        rows = [
            Row(
                name,
                lead=name[0],
                lead_colour=self.colours[name],
                key=f"person:{name}",
                on_tap=partial(self.push, "person", name),
            )
            for name in sorted(NAMES)
        ]
        return Page(rows, "Contacts", actions=[SEARCH], fab=("plus", "new", None))

    def _person(self, route: Route) -> Page:
        name = str(route.about)
        buttons = [
            ("Call", "call", lambda: self.call(name), True),
            ("Message", "message", lambda: self.message(name), False),
        ]
        body: list[Widget] = [
            Space(60 if self.low else 12),
            Row(name, "Mobile", name[0], self.colours[name], bold=True, tall=24),
            Buttons(buttons, "left" if self.low else "centre", 46),
            Row("Video call", lead="film"),
            Row("Share contact", lead="share"),
            Paragraph("Last called on Monday", 10.5, 1),
        ]
        star = "star" if name in self.favourites else "star_outline"
        favourite = (star, "favourite", lambda: self.favourites.symmetric_difference_update({name}))
        return Page(body, nav=self.up, actions=[favourite, ("pencil", "edit", None)])

    def message(self, name: str) -> None:
        self.phone.open("Messages")
        self.phone.the(Messages).talk(name)

    def call(self, name: str) -> None:
        self.calls.append(name)
        self.push("calling", name)

    def _calling(self, route: Route) -> Page:
        end = Buttons([("End call", "end", self.pop, True)], "centre", 60)
        title = Title(f"Calling {route.about}", 50, 20)
        return Page([Space(90), title, Paragraph("Mobile", 12, 1), Space(60), end], bar=False)
