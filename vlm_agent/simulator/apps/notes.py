"""Notes: short notes, each with a place that a goal in another app may need."""

import random
from functools import partial

from vlm_agent.simulator.app import App, Route
from vlm_agent.simulator.drawing.page import SEARCH, SHARE, Page
from vlm_agent.simulator.drawing.widgets import Paragraph, Row, Title
from vlm_agent.simulator.words import CITIES, LABELS


class Notes(App):
    """`notes`: title → place."""

    def fill(self, rng: random.Random) -> None:
        titles = rng.sample(LABELS, rng.randint(6, 11))
        self.notes = {title: rng.choice(CITIES) for title in titles}

    def _note(self, route: Route) -> Page:
        title, place = str(route.about), self.notes[str(route.about)]
        body = [Title(title.capitalize(), 50, 20), Paragraph("Do not forget the place:", 12, 1), Title(place, 40, 15)]
        return Page(body, "Note", nav=self.up, actions=[("trash", "delete", None), SHARE])

    def _home(self, route: Route) -> Page:
        rows = [
            Row(
                title.capitalize(),
                "Tap to read",
                "note",
                (240, 176, 20),
                key=f"note:{title}",
                tall=4,
                on_tap=partial(self.push, "note", title),
            )
            for title in self.notes
        ]
        return Page(rows, "Notes", fab=("plus", "new", None), actions=[SEARCH])
