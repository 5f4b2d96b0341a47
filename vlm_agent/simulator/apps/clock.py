"""The clock: alarms and a dial that sets them, a world clock, a timer, a stopwatch."""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from vlm_agent.simulator.app import App, Route
from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.drawing.page import DOTS, Page
from vlm_agent.simulator.drawing.widgets import Buttons, Choice, Row, Space, Title, Widget
from vlm_agent.simulator.words import CITIES, LABELS

MINUTES = tuple(range(0, 60, 5))


@dataclass
class Alarm:
    hour: int
    minute: int
    half: str
    label: str
    on: bool

    @property
    def time(self) -> str:
        return f"{self.hour}:{self.minute:02d} {self.half}"


@dataclass
class Dial(Widget):
    """A clock face to choose an hour or minute; the choices are clockwise from the top."""

    numbers: Sequence[Choice]
    tall = 150.0

    def draw(self, canvas: Canvas, y: float) -> None:
        theme = canvas.theme
        x, middle, radius = canvas.w / 2, y + 75, 56
        canvas.rect(x - 73, middle - 73, 146, 146, theme.surface if not theme.dark else (58, 60, 66), 73)
        for index, (word, key, on_tap, is_selected) in enumerate(self.numbers):
            angle = 2 * math.pi * index / len(self.numbers)
            at_x, at_y = x + radius * math.sin(angle), middle - radius * math.cos(angle)
            if is_selected:
                canvas.rect(at_x - 13, at_y - 13, 26, 26, theme.accent, 13)
            ink = ((20, 22, 26) if theme.dark else (255, 255, 255)) if is_selected else theme.ink
            aim = canvas.text(at_x, at_y, word, 12, ink, align=0.5)
            hit = (canvas.px(at_x - 13), canvas.px(at_y - 13), canvas.px(at_x + 13), canvas.px(at_y + 13))
            canvas.target(key, hit, aim, on_tap)


class Clock(App):
    def fill(self, rng: random.Random) -> None:
        times = rng.sample([(hour, minute) for hour in range(1, 13) for minute in MINUTES], rng.randint(5, 9))
        labels = rng.sample(LABELS, len(times))
        self.alarms = [
            Alarm(*time, rng.choice(("AM", "PM")), label, rng.random() < 0.5)
            for time, label in zip(times, labels, strict=True)
        ]
        self.zones = rng.sample(CITIES, rng.randint(1, 4))
        self.tab = rng.choice(("Alarm", "Clock", "Timer", "Stopwatch"))
        self.below = rng.random() < 0.4
        self.face = rng.choice((34.0, 44.0))
        self.running: str | None = None
        self.draft: dict = {"hour": 6, "minute": 0, "half": "AM"}
        self.saved: list[str] = []

    def durable(self) -> Iterable[str]:
        alarms = (f"alarm at {alarm.time}, {'on' if alarm.on else 'off'}" for alarm in self.alarms)
        running = [] if self.running is None else [f"{self.running} is running"]
        return (*alarms, *(f"time in {city}" for city in self.zones), *running)

    def page(self) -> Page:
        if self.route.name == "cities":
            return self._cities()
        pages: dict[str, Callable[[], Page]] = {
            "Alarm": self._alarms,
            "Clock": self._clock,
            "Timer": partial(self._counter, "timer", "start_timer", 40, Title("05 : 00", 90, 40)),
            "Stopwatch": partial(self._counter, "stopwatch", "start_watch", 70, Title("00.00", 90, 44)),
        }
        page = pages[self.tab]()
        page.tabs = [(name, f"tab:{name}", partial(self.show, name), name == self.tab) for name in pages]
        page.tabs_below = self.below
        if self.route.name in ("hour", "minute"):
            page.dialog = self._dial(self.route)
        return page

    def show(self, tab: str) -> None:
        self.tab = tab
        self.routes = [Route("home")]

    def _alarms(self) -> Page:
        rows = [self._row(alarm) for alarm in self.alarms]
        return Page([*rows, Space(8)], "Clock", fab=("plus", "new_alarm", self.new_alarm), actions=[DOTS])

    def _row(self, alarm: Alarm) -> Row:
        key, flip = f"alarm:{alarm.time}", lambda: self.flip(alarm)
        return Row(alarm.time, alarm.label, "clock", switch=alarm.on, key=key, bold=True, tall=8, on_tap=flip)

    def flip(self, alarm: Alarm) -> None:
        alarm.on = not alarm.on

    def new_alarm(self) -> None:
        self.draft = {"hour": 6, "minute": 0, "half": "AM"}
        self.push("hour")

    @property
    def dialled(self) -> str | None:
        """The time on the open dial; None where it is not shown."""
        is_shown = self.phone.shown == self.name and self.route.name in ("hour", "minute")
        return self._drafted.time if is_shown else None

    def _pick(self, what: str, value: object) -> None:
        self.draft[what] = value
        if what == "hour" and self.route.name == "hour":
            self.routes[-1] = Route("minute")

    def _dial(self, route: Route) -> list:
        draft = self.draft
        what = route.name
        words = {str(n): n for n in (12, *range(1, 12))} if what == "hour" else {f"{n:02d}": n for n in MINUTES}
        numbers = [(word, f"{what}:{n}", partial(self._pick, what, n), n == draft[what]) for word, n in words.items()]
        halves = [(half, half, partial(self._pick, "half", half), draft["half"] == half) for half in ("AM", "PM")]
        return [
            Title(self._drafted.time, 34, 22),
            Buttons(halves, "right", 28),
            Dial(numbers),
            Buttons([("Cancel", "cancel", self.pop, False), ("OK", "ok", self.save, False)], "right"),
        ]

    @property
    def _drafted(self) -> Alarm:
        return Alarm(self.draft["hour"], self.draft["minute"], self.draft["half"], "alarm", True)

    def save(self) -> None:
        self.alarms.append(self._drafted)
        self.saved.append(self._drafted.time)
        self.pop()

    def _clock(self) -> Page:
        clock = self.phone.theme.clock
        rows = [
            Row(city, "Today", "globe", trail=f"{(index * 5 + 3) % 12 + 1}:{clock.split(':')[1]}", tall=6)
            for index, city in enumerate(self.zones)
        ]
        fab = ("globe", "add_city", self.add_city)
        return Page([Title(clock, 70, self.face), *rows], "Clock", fab=fab, actions=[DOTS])

    def add_city(self) -> None:
        self.push("cities")
        self.fields["city"] = ""

    def _cities(self) -> Page:
        query = self.fields.get("city", "").lower()
        field = self.field("city", "Search for a city")
        rows = [
            Row(city, key=f"city:{city}", lead="globe", on_tap=partial(self._zone, city))
            for city in sorted(CITIES)
            if city.lower().startswith(query)
        ]
        return Page(rows, "Cities", nav=self.up, top=[field])

    def _zone(self, city: str) -> None:
        self.zones.append(city)
        self.pop()

    def _counter(self, what: str, key: str, above: float, title: Title) -> Page:
        button = ("Start", key, partial(self._run, what), True)
        if self.running == what:
            button = ("Pause", "pause", partial(self._run, None), True)
        buttons = Buttons([button], "centre", 60)
        return Page([Space(above), title, buttons], "Clock", actions=[DOTS])

    def _run(self, what: str | None) -> None:
        self.running = what
