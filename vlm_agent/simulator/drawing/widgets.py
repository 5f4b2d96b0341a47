"""Widgets, the parts of pages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vlm_agent.simulator.drawing.canvas import Box, Canvas
from vlm_agent.simulator.drawing.theme import Colour, mix

Tap = Callable[[], object] | None
"""The effect of a touch; None for no effect."""

IconButton = tuple[str, str, Tap]
"""(glyph, key, on_tap)"""

Choice = tuple[str, str, Tap, bool]
"""(label, key, on_tap, whether it is selected or filled)"""


class Widget:
    """A part of a page over the full width. `height` is in units, by default `tall`."""

    tall: float

    def height(self, canvas: Canvas) -> float:
        return self.tall

    def draw(self, canvas: Canvas, y: float) -> None:
        """Draws it with its top at `y` (units)."""
        raise NotImplementedError


def button(
    canvas: Canvas, x: float, y: float, label: str, key: str, on_tap: Tap, filled: bool = False, align: float = 0.0
) -> float:
    """Draws a text button centred on `y`; returns its width in units.

    `x` is the left end (`align` 0), the centre (0.5) or the right end (1).
    """
    theme = canvas.theme
    wide = 6.2 * len(label) * theme.font_scale + 18
    left = x - align * wide
    colour = theme.accent
    hit = (canvas.px(left), canvas.px(y - 12), canvas.px(left + wide), canvas.px(y + 12))
    if filled:
        canvas.widget("button", canvas.rect(left, y - 11, wide, 22, theme.accent, 11))
        colour = (20, 22, 26) if theme.dark else (255, 255, 255)
    aim = canvas.text(left + wide / 2, y, label, 11, colour, "Medium", 0.5)
    canvas.target(key, hit, aim, on_tap)
    return wide


def switch(canvas: Canvas, x: float, y: float, on: bool) -> Box:
    """Draws a toggle centred on `y` with its right end at `x`; returns its box."""
    theme = canvas.theme
    off = mix(theme.faint, theme.background, 0.45)
    canvas.rect(x - 24, y - 6, 24, 12, mix(theme.accent, theme.background, 0.5) if on else off, 6)
    canvas.rect(
        x - 13 if on else x - 25, y - 7, 14, 14, theme.accent if on else mix(theme.faint, (255, 255, 255), 0.5), 7
    )
    box = (canvas.px(x - 26), canvas.px(y - 7), canvas.px(x), canvas.px(y + 7))
    canvas.widget("switch", (canvas.px(x - 24 if on else x - 25), box[1], canvas.px(x + 1 if on else x), box[3]), on)
    return box


@dataclass
class Row(Widget):
    """A list row. The left end shows `app`, `picture` or `lead` (a glyph's name, or a single letter on a disc); the
    right end shows `switch`, `trail_glyph` or `trail` (a text). `tall` is added to the theme's row height."""

    title: str
    subtitle: str = ""
    lead: str = ""
    lead_colour: Colour | None = None
    app: tuple[str, Colour] | None = None
    picture: tuple[str, Colour] | None = None
    switch: bool | None = None
    trail: str = ""
    trail_glyph: str = ""
    key: str = ""
    on_tap: Tap = None
    trail_key: str = ""
    on_trail: Tap = None
    bold: bool = False
    tall: float = 0.0

    def height(self, canvas: Canvas) -> float:
        return canvas.theme.row + self.tall + (6 if self.subtitle else 0)

    def draw(self, canvas: Canvas, y: float) -> None:
        high = self.height(canvas)
        middle = y + high / 2
        theme = canvas.theme
        x = self._lead(canvas, middle)
        right, trail = self._trail(canvas, middle)
        weight = "Medium" if self.bold else "Regular"
        lift = 7 if self.subtitle else 0
        title = canvas.text(x, middle - lift, self.title, 12.5, theme.ink, weight, width=right - x - 4)
        if self.switch is not None and trail is not None:
            canvas.switch(self.title, self.switch, title, trail)
        if self.subtitle:
            canvas.text(x, middle + 7.5, self.subtitle, 10, theme.faint, width=right - x - 4)
        hit = (0, canvas.px(y), canvas.size[1], canvas.px(y + high))
        if self.key:
            canvas.target(self.key, hit, title, self.on_tap)
            if self.trail_key and trail is not None:
                canvas.target(self.trail_key, (trail[0] - canvas.px(6), *hit[1:]), trail, self.on_trail)

    def _lead(self, canvas: Canvas, middle: float) -> float:
        """Draws the left end; returns the x at which the title starts."""
        x = canvas.margin
        if self.app:
            canvas.app_icon(*self.app, x + 14, middle, 26)
            return x + 38
        if self.picture:
            picture(canvas, self.picture, x, middle - 17, 34, 34)
            return x + 44
        if len(self.lead) == 1:
            disc = canvas.rect(x, middle - 12, 24, 24, self.lead_colour or canvas.theme.accent, 12)
            canvas.widget("image", disc)
            canvas.text(x + 12, middle, self.lead, 12, (255, 255, 255), "Medium", 0.5, note=False)
            return x + 34
        if self.lead:
            canvas.glyph(self.lead, x + 10, middle, 17, self.lead_colour or canvas.theme.faint)
            return x + 32
        return x

    def _trail(self, canvas: Canvas, middle: float) -> tuple[float, Box | None]:
        """Draws the right end; returns the x at which the title must end, and the box of the drawing."""
        right = canvas.w - canvas.margin
        if self.switch is not None:
            return right - 30, switch(canvas, right, middle, self.switch)
        if self.trail_glyph:
            return right - 20, canvas.glyph(self.trail_glyph, right - 8, middle, 16, canvas.theme.faint)
        if self.trail:
            colour = canvas.theme.accent if self.trail_key else canvas.theme.faint
            box = canvas.text(right, middle, self.trail, 10.5, colour, "Medium", 1.0)
            return box[0] / canvas.unit - 2, box
        return right, None


def suggestion(text: str, lead: str, on_tap: Tap) -> Row:
    """The row of a text that a search field suggests."""
    return Row(text, lead=lead, key=f"suggest:{text}", trail_glyph="arrow_up_left", on_tap=on_tap)


def picture(canvas: Canvas, what: tuple[str, Colour], x: float, y: float, w: float, h: float) -> Box:
    """Draws the picture of a product or article, a glyph on a pale background, without an annotation.

    `what`: (glyph, colour).
    """
    glyph, colour = what
    ground = mix(colour, (255, 255, 255), 0.82) if sum(colour) < 600 else mix(colour, (90, 100, 120), 0.55)
    canvas.widget("image", canvas.rect(x, y, w, h, ground, 4))
    return canvas.glyph(glyph, x + w / 2, y + h / 2, min(w, h) * 0.74, colour, note=False)


@dataclass
class Header(Widget):
    """A small section title."""

    text: str
    size: float = 10.5
    accent: bool = True
    tall = 24.0

    def draw(self, canvas: Canvas, y: float) -> None:
        ink = canvas.theme.accent if self.accent else canvas.theme.ink
        canvas.text(canvas.margin, y + 14, self.text, self.size, ink, "Medium")


@dataclass
class Title(Widget):
    """A large title, like those above the lists of One UI."""

    text: str
    tall: float = 44.0
    size: float = 20.0

    def draw(self, canvas: Canvas, y: float) -> None:
        canvas.text(canvas.margin, y + self.tall / 2, self.text, self.size, canvas.theme.ink)


@dataclass
class Space(Widget):
    tall: float = 8.0
    line: bool = False

    def draw(self, canvas: Canvas, y: float) -> None:
        if self.line:
            canvas.line(y + self.tall / 2)


@dataclass
class Paragraph(Widget):
    text: str
    size: float = 11.0
    lines: int = 3
    faint: bool = True

    def height(self, canvas: Canvas) -> float:
        return self.size * 1.3 * self.lines + 8

    def draw(self, canvas: Canvas, y: float) -> None:
        colour = canvas.theme.faint if self.faint else canvas.theme.ink
        canvas.paragraph(
            canvas.margin, y + self.size * 0.8, self.text, self.size, colour, canvas.w - 2 * canvas.margin, self.lines
        )


@dataclass
class Field(Widget):
    """A text field with its content `text`; `hint` is shown while it is empty."""

    key: str
    hint: str
    text: str
    focused: bool
    on_tap: Tap
    glyph: str = "search"
    tall: float = 40.0
    trail_glyph: str = ""
    trail_key: str = ""
    on_trail: Tap = None

    def draw(self, canvas: Canvas, y: float) -> None:
        theme = canvas.theme
        middle, wide = y + self.tall / 2, canvas.w - 2 * canvas.margin
        inset = canvas.margin
        if self.focused:
            hit = canvas.frame(inset, middle - 14, wide, 28, theme.accent, theme.background, 14)
        else:
            hit = canvas.rect(inset, middle - 14, wide, 28, theme.surface, 14)
        canvas.widget("edit_text", hit)
        x = inset + 11
        if self.glyph:
            canvas.glyph(self.glyph, x + 5, middle, 13, theme.faint)
            x += 18
        room = wide - (x - inset) - (30 if self.trail_glyph else 12)
        aim = canvas.text(x, middle, self.text or self.hint, 12, theme.ink if self.text else theme.faint, width=room)
        if self.focused:
            canvas.rect(aim[2] / canvas.unit + 1 if self.text else x - 2, middle - 7, 1.2, 14, theme.accent)
        canvas.target(self.key, hit, aim, self.on_tap)
        if self.trail_glyph:
            box = canvas.glyph(self.trail_glyph, inset + wide - 15, middle, 14, theme.faint)
            canvas.target(self.trail_key, box, box, self.on_trail)


@dataclass
class Buttons(Widget):
    """A line of buttons."""

    items: Sequence[Choice]
    align: str = "left"
    tall: float = 36.0

    def draw(self, canvas: Canvas, y: float) -> None:
        scale = canvas.theme.font_scale
        total = sum(6.2 * len(item[0]) * scale + 18 for item in self.items) + 8 * (len(self.items) - 1)
        x = {"left": canvas.margin - 4, "centre": (canvas.w - total) / 2, "right": canvas.w - canvas.margin - total}[
            self.align
        ]
        for label, key, on_tap, filled in self.items:
            x += button(canvas, x, y + self.tall / 2, label, key, on_tap, filled) + 8


@dataclass
class Bubbles(Widget):
    """A conversation. `lines`: (text, whether the user sent it)."""

    lines: Sequence[tuple[str, bool]] = ()

    def height(self, canvas: Canvas) -> float:
        return 30.0 * len(self.lines) + 8

    def draw(self, canvas: Canvas, y: float) -> None:
        theme = canvas.theme
        for index, (text, mine) in enumerate(self.lines):
            top = y + 4 + 30 * index
            wide = min(canvas.w * 0.72, 6.4 * len(text) * theme.font_scale + 20)
            left = canvas.w - canvas.margin - wide if mine else canvas.margin
            canvas.rect(left, top, wide, 24, theme.accent if mine else theme.surface, 11)
            ink = theme.ink if not mine else ((20, 22, 26) if theme.dark else (255, 255, 255))
            canvas.text(left + 9, top + 12, text, 11, ink, width=wide - 14)
