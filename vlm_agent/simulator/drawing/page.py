"""Pages of apps as data, and how they are drawn: app bar, tabs, scrolling body, floating button, dialog."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.drawing.theme import Colour, mix
from vlm_agent.simulator.drawing.widgets import Choice, IconButton, Widget

STATUS_BAR = 15.0
APP_BAR = 36.0
TABS = 32.0

DOTS, MENU, SEARCH, SHARE = ((name, name, None) for name in ("dots", "menu", "search", "share"))
"""Buttons of app bars without effect."""


@dataclass
class Page:
    """A page. `body` scrolls between `top` and `foot`. `bar`: whether it has an app bar, with `title`, `nav` and
    `actions`. `badge`: key of an action → number on its icon. `fab`: the floating action button. `sheet`: draw the
    dialog at the bottom."""

    body: Sequence[Widget] = ()
    title: str = ""
    bar: bool = True
    nav: IconButton | None = None
    actions: Sequence[IconButton] = ()
    bar_colour: Colour | None = None
    top: Sequence[Widget] = ()
    foot: Sequence[Widget] = ()
    tabs: Sequence[Choice] = ()
    tabs_below: bool = False
    fab: IconButton | None = None
    dialog: Sequence[Widget] | None = None
    sheet: bool = False
    badge: dict[str, int] = field(default_factory=dict)


def draw_page(canvas: Canvas, page: Page, scroll: float, bottom: float) -> float:
    """Draws a page between the status bar and `bottom`; returns the largest scroll offset of its body (units)."""
    top = STATUS_BAR
    colour = page.bar_colour or canvas.theme.bar
    if page.bar:
        canvas.rect(0, 0, canvas.w, STATUS_BAR + APP_BAR, colour)
        _app_bar(canvas, page, colour)
        top += APP_BAR
    if page.tabs and not page.tabs_below:
        _draw_tabs(canvas, page, top, TABS, colour if page.bar else canvas.theme.background)
        top += TABS
    top = _stack(canvas, page.top, top)
    if page.tabs and page.tabs_below:
        bottom -= TABS + 6
        _draw_tabs(canvas, page, bottom, TABS + 6, canvas.theme.surface)
    foot = sum(widget.height(canvas) for widget in page.foot)
    _stack(canvas, page.foot, bottom - foot)
    limit = _body(canvas, page, scroll, top, bottom - foot)
    if page.fab:
        _floating_button(canvas, page.fab, bottom - foot)
    if page.dialog is not None:
        draw_dialog(canvas, page.dialog, page.sheet, bottom)
    return limit


def _stack(canvas: Canvas, widgets: Sequence[Widget], y: float) -> float:
    for widget in widgets:
        widget.draw(canvas, y)
        y += widget.height(canvas)
    return y


def _app_bar(canvas: Canvas, page: Page, colour: Colour) -> None:
    ink = canvas.theme.bar_ink if page.bar_colour is None else (255, 255, 255)
    middle = STATUS_BAR + APP_BAR / 2
    x = canvas.margin
    if page.nav:
        glyph, key, on_tap = page.nav
        box = canvas.glyph(glyph, x + 8, middle, 17, ink)
        canvas.target(key, _around(canvas, box), box, on_tap)
        x += 26
    right = canvas.w - canvas.margin
    for glyph, key, on_tap in reversed(page.actions):
        box = canvas.glyph(glyph, right - 7, middle, 16, ink)
        canvas.target(key, _around(canvas, box), box, on_tap)
        if page.badge.get(key):
            canvas.rect(right - 4, middle - 13, 12, 12, (220, 40, 40), 6)
            canvas.text(right + 2, middle - 7, str(page.badge[key]), 9, (255, 255, 255), "Bold", 0.5)
        right -= 27
    canvas.text(x, middle, page.title, 14.5, ink, "Medium", width=right - x)


def _around(canvas: Canvas, box: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    grow = canvas.px(6)
    return (box[0] - grow, box[1] - grow, box[2] + grow, box[3] + grow)


def _draw_tabs(canvas: Canvas, page: Page, top: float, tall: float, ground: Colour) -> None:
    theme, below = canvas.theme, page.tabs_below
    canvas.rect(0, top, canvas.w, tall, ground)
    is_coloured = not below and page.bar and (page.bar_colour is not None or theme.bar != theme.background)
    active, other = (theme.ink if below else theme.accent), theme.faint
    if is_coloured:
        active = other = (255, 255, 255)
    size = 10.5 if len(page.tabs) < 4 else 9.4
    wide = canvas.w / len(page.tabs)
    for index, (label, key, on_tap, is_selected) in enumerate(page.tabs):
        middle, tint = (index + 0.5) * wide, active if is_selected else other
        if is_selected and below:
            pill = mix(theme.surface, theme.accent, 0.3)
            canvas.rect(middle - wide * 0.42, top + 9, wide * 0.84, tall - 18, pill, 10)
        aim = canvas.text(middle, top + tall / 2, label, size, tint, "Medium", 0.5, wide - 2)
        if is_selected and not below:
            canvas.rect(index * wide + 6, top + TABS - 2.5, wide - 12, 2.5, tint)
        canvas.tab(label, aim, is_selected)
        hit = (canvas.px(index * wide), canvas.px(top), canvas.px((index + 1) * wide), canvas.px(top + tall))
        canvas.target(key, hit, aim, on_tap)
    if not below:
        canvas.line(top + TABS)


def _body(canvas: Canvas, page: Page, scroll: float, top: float, bottom: float) -> float:
    tall = sum(widget.height(canvas) for widget in page.body)
    if page.fab:
        tall += 46
    limit = max(0.0, tall - (bottom - top))
    scroll = min(scroll, limit)
    canvas.body = canvas.clip = (canvas.px(top), canvas.px(bottom))
    _stack(canvas, page.body, top - scroll)
    canvas.clip = (0, canvas.size[0])
    if limit and bottom > top:
        share = (bottom - top) / tall
        canvas.rect(canvas.w - 2.6, top + scroll * share, 2, (bottom - top) * share, canvas.theme.line, 1)
    return limit


def _floating_button(canvas: Canvas, fab: IconButton, bottom: float) -> None:
    theme = canvas.theme
    glyph, key, on_tap = fab
    x, y = theme.fab_x * canvas.w, bottom - 28
    canvas.cover(x - 18, y - 18, 36, 36)
    canvas.rect(x - 19, y - 17, 38, 38, mix(theme.background, (0, 0, 0), 0.18), 19)
    hit = canvas.rect(x - 18, y - 18, 36, 36, theme.accent, 18)
    canvas.widget("button", hit)
    box = canvas.glyph(glyph, x, y, 18, (20, 22, 26) if theme.dark else (255, 255, 255), is_button=False)
    canvas.target(key, hit, box, on_tap)


def draw_dialog(canvas: Canvas, widgets: Sequence[Widget], sheet: bool, bottom: float) -> None:
    """Draws a card over the dimmed screen, in the middle or, if `sheet`, at the bottom."""
    canvas.dim()
    canvas.margin = 26.0 if not sheet else 16.0
    tall = sum(widget.height(canvas) for widget in widgets) + 16
    inset = canvas.margin - 12
    y = bottom - tall - 4 if sheet else max(STATUS_BAR, (bottom + STATUS_BAR - tall) / 2)
    canvas.rect(
        inset, y, canvas.w - 2 * inset, tall, canvas.theme.surface if canvas.theme.dark else canvas.theme.background, 12
    )
    _stack(canvas, widgets, y + 8)
    canvas.margin = 12.0
