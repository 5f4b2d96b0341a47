"""The system UI around every app: status bar, navigation bar, keyboard, quick settings."""

from functools import partial
from typing import TYPE_CHECKING

from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.drawing.page import STATUS_BAR
from vlm_agent.simulator.drawing.theme import Colour, mix
from vlm_agent.simulator.drawing.widgets import Row
from vlm_agent.simulator.words import SWITCHES

if TYPE_CHECKING:
    from vlm_agent.simulator.phone import SimulatedPhone

KEYBOARD = 150.0
LETTERS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def navigation_height(canvas: Canvas) -> float:
    return 14.0 if canvas.theme.gesture_bar else 26.0


def status_bar(canvas: Canvas, phone: "SimulatedPhone", ink: Colour) -> None:
    middle = STATUS_BAR / 2 + 0.5
    canvas.text(8, middle, canvas.theme.clock, 9.5, ink, "Medium")
    x = canvas.w - 12
    for glyph in ("battery_level", "signal", *["wifi"] * phone.switches["Wifi"]):
        canvas.glyph(glyph, x, middle, 10.5, ink, note=False)
        x -= 13
    canvas.glyph("bell", 46, middle, 9, ink, note=False)
    canvas.widget("status_bar", (0, 0, canvas.size[1], canvas.px(STATUS_BAR)))


def navigation_bar(canvas: Canvas, phone: "SimulatedPhone", ground: Colour | None) -> None:
    """Draws three buttons, or the pill of gesture navigation; the background is transparent if `ground` is None."""
    tall = navigation_height(canvas)
    top = canvas.h - tall
    canvas.cover(0, top, canvas.w, tall)
    if ground is not None:
        canvas.rect(0, top, canvas.w, tall + 1, ground)
    canvas.widget("navigation_bar", (0, canvas.px(top), canvas.size[1], canvas.size[0]))
    ink = (255, 255, 255) if ground is None or sum(ground) < 380 else (70, 72, 76)
    middle = top + tall / 2
    if canvas.theme.gesture_bar:
        canvas.rect(canvas.w * 0.35, middle - 1.5, canvas.w * 0.3, 3, ink, 1.5)
        return
    if phone.theme.api_level < 29:
        ink = mix(ink, (128, 128, 128), 0.3)
    buttons = (
        ("nav_back", 0.22, phone.press_back),
        ("nav_home", 0.5, phone.press_home),
        ("nav_recents", 0.78, phone.press_recents),
    )
    for glyph, x, on_tap in buttons:
        box = canvas.glyph(glyph, x * canvas.w, middle, 13, ink, is_button=False)
        hit = (box[0] - canvas.px(16), canvas.px(top), box[2] + canvas.px(16), canvas.size[0])
        canvas.target(f"system:{glyph}", hit, box, on_tap)


def keyboard(canvas: Canvas, phone: "SimulatedPhone", bottom: float) -> None:
    theme = canvas.theme
    top = bottom - KEYBOARD
    canvas.cover(0, top, canvas.w, KEYBOARD)
    ground = (38, 40, 44) if theme.dark else (232, 234, 238)
    canvas.rect(0, top, canvas.w, KEYBOARD + 1, ground)
    key = mix(ground, (255, 255, 255), 0.12 if theme.dark else 0.85)
    wide, tall = (canvas.w - 4) / 10, KEYBOARD / 4.3
    for line, letters in enumerate(LETTERS):
        left = 2 + (10 - len(letters)) * wide / 2
        y = top + 8 + line * tall
        for place, letter in enumerate(letters):
            x = left + place * wide
            hit = canvas.rect(x + 1, y, wide - 2, tall - 5, key, 3)
            aim = canvas.text(x + wide / 2, y + tall / 2 - 2, letter, 12.5, align=0.5, note=False)
            canvas.target(f"system:{letter}", hit, aim, partial(phone.type_text, letter))
    _specials(canvas, phone, top + 8, wide, tall, key)


def _specials(canvas: Canvas, phone: "SimulatedPhone", top: float, wide: float, tall: float, key: Colour) -> None:
    third, fourth = top + 2.5 * tall - 2, top + 3.5 * tall - 2
    for glyph, x, y, on_tap in (
        ("shift", 0.75 * wide, third, None),
        ("erase", canvas.w - 0.8 * wide, third, phone.erase),
        ("smile", 1.9 * wide, fourth, None),
    ):
        box = canvas.glyph(glyph, x, y, 14)
        canvas.target(f"system:{glyph}", box, box, on_tap)
    space = canvas.rect(2.7 * wide, top + 3 * tall + 2, 4.6 * wide, tall - 9, key, 4)
    canvas.target("system:space", space, space, lambda: phone.type_text(" "))
    hit = canvas.rect(canvas.w - 1.35 * wide - 6, fourth - 12, 26, 24, canvas.theme.accent, 12)
    ink = (20, 22, 26) if canvas.theme.dark else (255, 255, 255)
    canvas.widget("button", hit)
    box = canvas.glyph("search", canvas.w - 1.35 * wide + 7, fourth, 13, ink, is_button=False)
    canvas.target("system:enter", hit, box, phone.press_enter)


def shade(canvas: Canvas, phone: "SimulatedPhone") -> None:
    """Draws quick settings and notifications over the foreground app."""
    theme = canvas.theme
    canvas.dim(0.6)
    ground = (28, 29, 33) if theme.dark else (244, 245, 248)
    rows = -(-len(phone.quick) // 3)
    tall = 44 + rows * 58 + 16 + 44 * len(phone.notices)
    canvas.rect(0, 0, canvas.w, tall, ground, 14)
    canvas.text(14, 26, phone.day, 12, weight="Medium")
    for index, name in enumerate(phone.quick):
        _tile(canvas, phone, name, canvas.w * (index % 3 + 0.5) / 3, 42 + 58 * (index // 3))
    y = 46 + rows * 58
    for app, title, text in phone.notices:
        canvas.rect(8, y, canvas.w - 16, 40, theme.surface if not theme.dark else (50, 52, 58), 8)
        Row(title, text, app=phone.catalogue[app], tall=2).draw(canvas, y)
        target = canvas.notes[-2][0]
        canvas.target(
            f"notice:{title}", (0, canvas.px(y), canvas.size[1], canvas.px(y + 40)), target, partial(phone.open, app)
        )
        y += 44


def _tile(canvas: Canvas, phone: "SimulatedPhone", name: str, x: float, y: float) -> None:
    theme = canvas.theme
    on = phone.switches[name]
    disc = theme.accent if on else mix(theme.faint, theme.background, 0.6)
    canvas.widget("button", canvas.rect(x - 16, y, 32, 32, disc, 16), on)
    ink = ((20, 22, 26) if theme.dark else (255, 255, 255)) if on else theme.ink
    aim = canvas.glyph(SWITCHES[name], x, y + 16, 18, ink, is_button=False)
    canvas.text(x, y + 41, name, 10, align=0.5, width=canvas.w / 3 - 2)
    hit = (canvas.px(x - 30), canvas.px(y), canvas.px(x + 30), canvas.px(y + 48))
    canvas.target(f"quick:{name}", hit, aim, lambda: phone.toggle(name))
