"""The home screen: pages of apps over a wallpaper, a dock, a search pill, the app drawer, recent apps."""

import random
from functools import partial

from vlm_agent.simulator.app import App
from vlm_agent.simulator.apps.browser import Browser
from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.drawing.page import STATUS_BAR, Page, draw_page
from vlm_agent.simulator.drawing.theme import Colour, mix
from vlm_agent.simulator.drawing.tiles import Cell, Grid, grid
from vlm_agent.simulator.drawing.widgets import Field, Header, Row, Space

LAUNCHER = "org.launcher"
"""Its package."""

WHITE = (255, 255, 255)
COLUMNS, ROWS = 4, 4
DRAWER_ROWS = 5


class Launcher(App):
    """With `theme.drawer` `scroll` or `pages` the home screen has an app drawer; with `none` it shows every app."""

    def fill(self, rng: random.Random) -> None:
        apps = list(self.phone.installed)
        rng.shuffle(apps)
        self.dock = [apps.pop() for _ in range(rng.choice((3, 4, 4)))]
        self.columns = 4 if rng.random() < 0.75 else 5
        slots = COLUMNS * ROWS
        if self.phone.theme.drawer == "none":
            names, pages = apps, 3
        else:
            names, pages = apps[: rng.randint(5, 16)], rng.choice((1, 1, 2))
        self.pages: list[list[str | None]] = [[None] * slots for _ in range(pages)]
        places = rng.sample(range(slots * pages), len(names))
        for place, name in zip(places, names, strict=True):
            self.pages[place // slots][place % slots] = name
        self.at = rng.choice((0, pages - 1))
        self.first = self.at
        self.gap = rng.uniform(0, 40)

    def to_root(self) -> None:
        super().to_root()
        self.at = self.first

    def forget(self, name: str) -> None:
        """Remove an uninstalled app from the home screen."""
        self.dock = [app for app in self.dock if app != name]
        self.pages = [[None if app == name else app for app in page] for page in self.pages]

    def draw(self, canvas: Canvas, bottom: float) -> None:
        if self.route.name == "home":
            canvas.wallpaper()
            self._home(canvas, bottom)
        elif self.route.name == "recents":
            self.route.limit = draw_page(canvas, self._recents(), self.route.scroll, bottom)
        else:
            canvas.image.paste(mix(canvas.theme.background, (0, 0, 0), 0.02), (0, 0, *canvas.image.size))
            self.route.limit = draw_page(canvas, self._drawer(canvas), self.route.scroll, bottom)
            if canvas.theme.drawer == "pages":
                self._draw_dots(canvas, bottom - 10, *self._dots, canvas.theme.accent, canvas.theme.line)

    def _cell(self, name: str) -> Cell:
        return Cell(name, f"app:{name}", lambda: self.phone.open(name), app=self.phone.catalogue[name])

    def _home(self, canvas: Canvas, bottom: float) -> None:
        y = bottom - 64
        pill_on_top = canvas.theme.search_at == "top"
        if not pill_on_top:
            y -= 40
            self._pill(canvas, bottom - 40)
        Grid([self._cell(name) for name in self.dock], len(self.dock), 58, 32, WHITE).draw(canvas, y)
        dots = y - 8
        self._draw_dots(canvas, dots, self.at, len(self.pages), WHITE, (150, 150, 160))
        if canvas.theme.drawer != "none":
            canvas.glyph("up", canvas.w / 2, dots - 9, 9, WHITE, note=False)
        top = self._heading(canvas, pill_on_top)
        pitch = min(66.0, (dots - 12 - top) / ROWS)
        for row in range(ROWS):
            names = self.pages[self.at][row * COLUMNS : (row + 1) * COLUMNS]
            cells = [None if name is None else self._cell(name) for name in names]
            Grid(cells, COLUMNS, pitch, min(32.0, pitch - 20), WHITE).draw(canvas, top + row * pitch)
        self._hide(canvas)

    @staticmethod
    def _draw_dots(canvas: Canvas, y: float, at: int, count: int, current: Colour, other: Colour) -> None:
        boxes = []
        for index in range(count):
            side = (index - (count - 1) / 2) * 10
            boxes.append(canvas.rect(canvas.w / 2 + side - 2, y - 2, 4, 4, current if index == at else other, 2))
        if count > 1:
            canvas.widget("page_indicator", (boxes[0][0], boxes[0][1], boxes[-1][2], boxes[-1][3]))

    def _heading(self, canvas: Canvas, pill_on_top: bool) -> float:
        top = STATUS_BAR + 4
        if pill_on_top:
            self._pill(canvas, top + 2)
            return top + 46
        canvas.text(14, top + 16, self.phone.day, 15, WHITE)
        return top + 36

    def _pill(self, canvas: Canvas, y: float) -> None:
        hit = canvas.rect(14, y + 2, canvas.w - 28, 30, WHITE, 15)
        canvas.widget("edit_text", hit)
        canvas.glyph("search", 30, y + 17, 14, (90, 94, 100))
        canvas.glyph("mic", canvas.w - 30, y + 17, 14, (66, 120, 230))
        aim = canvas.text(44, y + 17, "Search", 12, (110, 114, 120))
        canvas.target("pill", hit, aim, self._search)

    def _search(self) -> None:
        self.phone.open("Browser")
        self.phone.the(Browser).new_search()

    def _hide(self, canvas: Canvas) -> None:
        """Record the swipe towards each hidden app: on a later page, on an earlier page, or in the drawer."""
        for index, page in enumerate(self.pages):
            for name in page:
                if name is not None and index != self.at:
                    canvas.hide(f"app:{name}", "left" if index > self.at else "right")
        if canvas.theme.drawer != "none":
            for name in self.phone.installed:
                if not (name in self.dock or any(name in page for page in self.pages)):
                    canvas.hide(f"app:{name}", "up")

    def _drawer(self, canvas: Canvas) -> Page:
        names = sorted(self.phone.installed)
        if canvas.theme.drawer == "pages":
            names = self._drawer_page(canvas, names)
        rows = grid([self._cell(name) for name in names], self.columns, 64, 30)
        search = Field("drawer_search", "Search apps", self.fields.get("drawer_search", ""), False, None)
        return Page([Header("All apps"), *rows, Space(12)], bar=False, top=[search])

    def _drawer_page(self, canvas: Canvas, names: list[str]) -> list[str]:
        each = self.columns * DRAWER_ROWS
        at = int(self.route.about or 0)
        self._dots = (at, (len(names) - 1) // each + 1)
        for index, name in enumerate(names):
            if index // each != at:
                canvas.hide(f"app:{name}", "left" if index // each > at else "right")
        return names[at * each : (at + 1) * each]

    def _recents(self) -> Page:
        rows = [
            Row(
                name,
                "Recently used",
                app=self.phone.catalogue[name],
                key=f"app:{name}",
                tall=14,
                on_tap=partial(self.phone.open, name),
            )
            for name in self.phone.recents
        ]
        return Page(rows, "Recent apps")

    def swiped(self, canvas: Canvas, direction: str, touch_y: float, length: float) -> None:
        if self.route.name == "home":
            if direction == "up" and canvas.theme.drawer != "none":
                self.push("drawer", 0)
            elif direction in ("left", "right"):
                self.at = min(max(0, self.at + (1 if direction == "left" else -1)), len(self.pages) - 1)
        elif self.route.name == "drawer" and direction in ("left", "right") and canvas.theme.drawer == "pages":
            last = (len(self.phone.installed) - 1) // (self.columns * DRAWER_ROWS)
            self.route.about = min(max(0, int(self.route.about or 0) + (1 if direction == "left" else -1)), last)
        elif self.route.name == "drawer" and direction == "down" and self.route.scroll == 0:
            self.pop()
        else:
            super().swiped(canvas, direction, touch_y, length)

    def sideways(self, direction: str) -> None:
        """Has no effect, because the drawer and recent apps have no tabs."""

    def back(self) -> bool:
        super().back()
        return True

    def activity(self) -> str:
        return f"{LAUNCHER}/.{self.route.name.title()}"
