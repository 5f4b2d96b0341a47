"""Widgets with pictures, and widgets that scroll sideways."""

from collections.abc import Sequence
from dataclasses import dataclass

from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.drawing.theme import Colour, mix
from vlm_agent.simulator.drawing.widgets import Choice, Tap, Widget, picture


@dataclass
class Chips(Widget):
    """A strip of chips, scrolled sideways by `offset` units."""

    items: Sequence[Choice]
    offset: float = 0.0
    strip: str = ""
    tall = 34.0

    def draw(self, canvas: Canvas, y: float) -> None:
        theme = canvas.theme
        x = canvas.margin - self.offset
        total = sum(6.0 * len(item[0]) * theme.font_scale + 26 for item in self.items)
        canvas.strip(self.strip, y, self.tall, total + 2 * canvas.margin - canvas.w)
        for label, key, on_tap, is_selected in self.items:
            wide = 6.0 * len(label) * theme.font_scale + 18
            inside = mix(theme.background, theme.accent, 0.25) if is_selected else theme.background
            hit = canvas.frame(x, y + 6, wide, 22, theme.line, inside, 11)
            canvas.widget("button", hit)
            aim = canvas.text(x + wide / 2, y + 17, label, 10.5, theme.ink, "Medium", 0.5, width=wide)
            canvas.target(key, hit, aim, on_tap)
            x += wide + 8


@dataclass
class Cell:
    """A cell of a `Grid`: a picture or an app icon above a label, with an optional second line."""

    label: str
    key: str
    on_tap: Tap
    app: tuple[str, Colour] | None = None
    picture: tuple[str, Colour] | None = None
    second: str = ""


@dataclass
class Grid(Widget):
    """One line of `columns` cells; None is an empty cell."""

    cells: Sequence[Cell | None]
    columns: int = 4
    tall: float = 62.0
    icon: float = 32.0
    ink: Colour | None = None
    inset: float = 4.0

    def draw(self, canvas: Canvas, y: float) -> None:
        wide = (canvas.w - 2 * self.inset) / self.columns
        for column, cell in enumerate(self.cells):
            if cell is not None:
                self._cell(canvas, cell, self.inset + column * wide, y, wide)

    def _cell(self, canvas: Canvas, cell: Cell, x: float, y: float, wide: float) -> None:
        middle, top = x + wide / 2, y + 4
        if cell.app:
            aim = canvas.app_icon(*cell.app, middle, top + self.icon / 2, self.icon)
            base = top + self.icon + 9
        elif cell.picture:
            size = self.tall - (40 if cell.second else 28)
            aim = picture(canvas, cell.picture, middle - (wide - 12) / 2, top, wide - 12, size)
            base = top + size + 9
        else:
            raise ValueError(f"the cell {cell.label!r} needs an app or a picture")
        ink = self.ink or canvas.theme.ink
        label = canvas.text(middle, base, cell.label, 10, ink, align=0.5, width=wide - 2)
        if cell.second:
            canvas.text(middle, base + 12.5, cell.second, 10.5, ink, "Bold", 0.5)
        hit = (canvas.px(x), canvas.px(y), canvas.px(x + wide), canvas.px(y + self.tall))
        canvas.target(cell.key, hit, aim if cell.app else label, cell.on_tap)


def grid(cells: Sequence[Cell], columns: int, tall: float, icon: float = 32.0) -> list[Grid]:
    """Lines of `columns` cells."""
    return [Grid(cells[at : at + columns], columns, tall, icon) for at in range(0, len(cells), columns)]


@dataclass
class Carousel(Widget):
    """A line of cards, scrolled sideways by `offset` units."""

    cells: Sequence[Cell]
    strip: str
    offset: float = 0.0
    pitch: float = 82.0
    tall: float = 104.0

    def draw(self, canvas: Canvas, y: float) -> None:
        grid = Grid([], tall=self.tall)
        total = self.pitch * len(self.cells) + 2 * canvas.margin - canvas.w
        canvas.strip(self.strip, y, self.tall, total)
        for index, cell in enumerate(self.cells):
            x = canvas.margin - 4 + index * self.pitch - self.offset
            if -self.pitch < x < canvas.w:
                canvas.frame(x, y, self.pitch - 6, self.tall - 4, canvas.theme.line, canvas.theme.background, 6)
            grid._cell(canvas, cell, x, y + 2, self.pitch - 6)


@dataclass
class BigPicture(Widget):
    """A product's picture over the width of its page."""

    what: tuple[str, Colour]
    tall: float = 120.0

    def draw(self, canvas: Canvas, y: float) -> None:
        picture(canvas, self.what, 12, y + 4, canvas.w - 24, self.tall - 8)
