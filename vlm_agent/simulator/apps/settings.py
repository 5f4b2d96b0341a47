"""Settings: a list of switches and sub-pages with choices."""

import random
from collections.abc import Iterable
from functools import partial

from vlm_agent.simulator.app import App, Route
from vlm_agent.simulator.drawing.page import SEARCH, Page
from vlm_agent.simulator.drawing.theme import ACCENTS
from vlm_agent.simulator.drawing.widgets import Paragraph, Row, Space, Title, Widget
from vlm_agent.simulator.words import SETTING_PAGES, SWITCHES

CHOICES = {
    "Display": ("Small text", "Medium text", "Large text"),
    "Sounds": ("Low volume", "Middle volume", "High volume"),
    "Storage": ("Clean now", "Show files", "Move files"),
    "Security": ("Pattern", "Password", "Fingerprint"),
    "Privacy": ("Show everything", "Ask first", "Hide everything"),
    "Language": ("English", "French", "Spanish"),
    "Keyboard": ("Letters", "Swiping", "Voice"),
    "Accounts": ("Add account", "Remove account", "Sync now"),
    "Wallpaper": ("Hills", "Discs", "Rays"),
    "System": ("About phone", "Date and time", "Updates"),
}


class Settings(App):
    """The order of the list and the initial choice on each sub-page vary with the phone."""

    def fill(self, rng: random.Random) -> None:
        self.order = [*SWITCHES, *SETTING_PAGES]
        rng.shuffle(self.order)
        self.choices = {page: rng.choice(choices) for page, choices in CHOICES.items()}
        self.colours = {name: rng.choice(ACCENTS) for name in self.order}
        self.plain = rng.random() < 0.4
        self.groups = rng.random() < 0.5

    def durable(self) -> Iterable[str]:
        return (f"{page}: {choice}" for page, choice in self.choices.items())

    def _home(self, route: Route) -> Page:
        body: list[Widget] = [Title("Settings", self.phone.theme.header)] if self.phone.theme.header else []
        for index, name in enumerate(self.order):
            body.append(self._row(name))
            if self.groups and index % 5 == 4:
                body.append(Space(12, line=True))
        return Page(body, "Settings", actions=[SEARCH])

    def _row(self, name: str) -> Row:
        colour = None if self.plain else self.colours[name]
        if name in SWITCHES:
            on = self.phone.switches[name]
            return Row(
                name,
                "On" if on else "Off",
                SWITCHES[name],
                colour,
                switch=on,
                key=name,
                on_tap=lambda: self.phone.toggle(name),
            )
        return Row(
            name, self.choices[name], SETTING_PAGES[name], colour, key=name, on_tap=lambda: self.push("page", name)
        )

    def _page(self, route: Route) -> Page:
        page = str(route.about)

        def choose(choice: str) -> None:
            self.choices[page] = choice

        rows = [
            Row(
                choice,
                key=choice,
                trail_glyph="check" if choice == self.choices[page] else "",
                on_tap=partial(choose, choice),
            )
            for choice in CHOICES[page]
        ]
        body: list[Widget] = [Title(page, self.phone.theme.header)] if self.phone.theme.header else []
        body += [
            *rows,
            Space(10, line=True),
            Paragraph(f"What you choose here holds for every app that uses {page.lower()}."),
        ]
        return Page(body, page, nav=self.up)
