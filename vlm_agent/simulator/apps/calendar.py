"""The calendar: a week with one page per day; swipes sideways change the day."""

import random
from collections.abc import Iterable
from functools import partial

from vlm_agent.simulator.app import App, Route
from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.drawing.page import MENU, SHARE, Page
from vlm_agent.simulator.drawing.theme import ACCENTS
from vlm_agent.simulator.drawing.widgets import Buttons, Paragraph, Row, Title, Widget
from vlm_agent.simulator.words import CITIES, DAYS, LABELS


class Calendar(App):
    """`week`: day → event → place."""

    def fill(self, rng: random.Random) -> None:
        self.at = rng.randrange(7)
        self.week = {
            day: {event: rng.choice(CITIES) for event in rng.sample(LABELS, rng.randint(3, 6))} for day in DAYS
        }
        self.colours = {event: rng.choice(ACCENTS) for event in LABELS}
        self.deleted: list[tuple[str, str]] = []
        self.low = rng.random() < 0.5

    def durable(self) -> Iterable[str]:
        return (f"{event} on {day}" for day, events in self.week.items() for event in events)

    @property
    def day(self) -> str:
        return DAYS[self.at]

    def _home(self, route: Route) -> Page:
        rows = [
            Row(
                event.capitalize(),
                f"{index + 8}:00",
                event[0].upper(),
                self.colours[event],
                key=f"event:{event}",
                tall=12,
                on_tap=partial(self.push, "event", event),
            )
            for index, event in enumerate(self.week[self.day])
        ]
        head = Title(self.day, 40 + self.phone.theme.header * 0.6, 20)
        return Page([head, *rows], "Calendar", nav=MENU, fab=("plus", "new", None))

    def draw(self, canvas: Canvas, bottom: float) -> None:
        super().draw(canvas, bottom)
        if self.route.name == "home":
            for index, day in enumerate(DAYS):
                canvas.hide(f"day:{day}", "left" if index > self.at else "right")

    def sideways(self, direction: str) -> None:
        if self.route.name == "home":
            self.at = min(max(0, self.at + (1 if direction == "left" else -1)), 6)

    def _event(self, route: Route) -> Page:
        event = str(route.about)
        place = self.week[self.day].get(event, "")
        buttons = [("Delete", "delete", lambda: self._delete(event), False), ("Edit", "edit", None, False)]
        body: list[Widget] = [
            Title(event.capitalize(), 50, 20),
            Row(self.day, "All day", "clock"),
            Row(place, "Place", "pin"),
            Paragraph("Remind me one hour before", 11, 1),
            Buttons(buttons, "left" if self.low else "right", 46),
        ]
        return Page(body, nav=self.up, actions=[SHARE])

    def _delete(self, event: str) -> None:
        self.week[self.day].pop(event, None)
        self.deleted.append((self.day, event))
        self.pop()
