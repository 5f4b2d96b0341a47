"""The parts of a collage around its rare controls: buttons, text fields, pictures, bars of the system."""

import random

from PIL import Image, ImageDraw

from shipped_weights.screens.controls import Control, ring, tint
from shipped_weights.screens.styles import any_colour, readable_on
from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.drawing.glyphs import GLYPHS
from vlm_agent.simulator.drawing.theme import WALLPAPERS, Theme, mix, wallpaper
from vlm_agent.simulator.drawing.widgets import picture
from vlm_agent.simulator.words import APPS, STORE_APPS

_CATALOGUE = tuple({**APPS, **STORE_APPS}.values())


def text_button(rng: random.Random, theme: Theme, label: str) -> Control:
    """A filled, pale or outlined button; without ground or border it would be a text."""
    tall, size = rng.uniform(15, 28), rng.uniform(9.5, 12.5)
    wide = min(180.0, 0.6 * size * len(label) * theme.font_scale + rng.uniform(12, 40))
    look, colour = rng.choice(("filled", "filled", "pale", "outlined")), tint(rng, theme)
    radius = rng.choice((0.0, 2.0, 5.0, tall / 2, tall / 2))

    def draw(canvas: Canvas, x: float, y: float) -> None:
        ground = colour if look == "filled" else mix(theme.background, colour, 0.18)
        if look == "outlined":
            box, ink = ring(canvas, x, y, wide, tall, mix(colour, theme.background, 0.2), radius), colour
        else:
            box = canvas.rect(x, y, wide, tall, ground, radius)
            ink = readable_on(ground)
        canvas.text(x + wide / 2, y + tall / 2, label, size, ink, "Medium", 0.5, wide - 4)
        canvas.widget("button", box)

    return Control(wide, tall, draw)


def icon_button(rng: random.Random, theme: Theme) -> Control:
    """A bare icon, or an icon on a disc or rounded square."""
    glyph, side, colour = rng.choice(tuple(GLYPHS)), rng.uniform(9, 20), tint(rng, theme)
    ground = rng.choice((0.0, 0.0, 0.0, rng.uniform(5, 18)))
    shape = rng.choice((0.5, 0.5, 0.3))
    ink = rng.choice((theme.ink, theme.faint, colour))

    def draw(canvas: Canvas, x: float, y: float) -> None:
        if not ground:
            canvas.glyph(glyph, x + side / 2, y + side / 2, side, ink)
            return
        whole = side + ground
        box = canvas.rect(x, y, whole, whole, colour, whole * shape)
        canvas.glyph(glyph, x + whole / 2, y + whole / 2, side, readable_on(colour), is_button=False)
        canvas.widget("button", box)

    return Control(side + ground, side + ground, draw)


def edit_text(rng: random.Random, theme: Theme, hint: str) -> Control:
    """A text field: a frame, a ground, or a line below the text; with a hint, a text, or nothing in it."""
    wide, tall, size = rng.uniform(70, 188), rng.uniform(18, 32), rng.uniform(9.5, 13)
    look, radius = rng.choice(("frame", "frame", "ground", "ground", "line")), rng.choice((0.0, 3.0, 6.0, tall / 2))
    is_empty, lead = (
        look != "line" and rng.random() < 0.15,
        rng.choice(("", "", "search", "envelope", "person", "lock")),
    )
    border, shade = mix(theme.ink, theme.background, rng.uniform(0.2, 0.7)), rng.uniform(0.07, 0.16)
    ink = theme.faint if rng.random() < 0.6 else theme.ink

    def draw(canvas: Canvas, x: float, y: float) -> None:
        box = (canvas.px(x), canvas.px(y), canvas.px(x + wide), canvas.px(y + tall))
        if look == "frame":
            ring(canvas, x, y, wide, tall, border, radius)
        elif look == "ground":
            canvas.rect(x, y, wide, tall, mix(theme.background, theme.ink, shade), radius)
        else:
            canvas.rect(x, y + tall - 1, wide, 1, border)
        inset, middle = 1.0 if look == "line" else 7.0, y + tall / 2
        if lead:
            canvas.glyph(lead, x + inset + 5, middle, 11, theme.faint)
            inset += 15
        if not is_empty:
            canvas.text(x + inset, middle, hint, size, ink, width=wide - inset - 5)
        canvas.widget("edit_text", box)

    return Control(wide, tall, draw)


def image(rng: random.Random, theme: Theme, letter: str) -> Control:
    """A picture: an app icon, a glyph on a ground, a landscape, or a letter on a disc."""
    look = rng.choice(("app", "picture", "landscape", "landscape", "letter"))
    glyph, colour = rng.choice(_CATALOGUE)
    side = rng.uniform(16, 34)
    wide, tall = (rng.uniform(30, 180), rng.uniform(26, 95)) if look in ("picture", "landscape") else (side, side)
    radius, number = rng.choice((0.0, 0.0, 4.0, 10.0)), rng.randrange(3 * len(WALLPAPERS))

    def draw(canvas: Canvas, x: float, y: float) -> None:
        if look == "app":
            canvas.app_icon(glyph, colour, x + side / 2, y + side / 2, side)
        elif look == "picture":
            picture(canvas, (glyph, colour), x, y, wide, tall)
        elif look == "letter":
            canvas.widget("image", canvas.rect(x, y, side, side, colour, side / 2))
            canvas.text(x + side / 2, y + side / 2, letter, side / 2, readable_on(colour), "Medium", 0.5, note=False)
        else:
            _landscape(canvas, (x, y, wide, tall), radius, number)

    return Control(wide, tall, draw)


def _landscape(canvas: Canvas, place: tuple[float, float, float, float], radius: float, number: int) -> None:
    x, y, wide, tall = place
    box = (canvas.px(x), canvas.px(y), canvas.px(x + wide), canvas.px(y + tall))
    size = (box[2] - box[0], box[3] - box[1])
    mask = Image.new("L", size)
    ImageDraw.Draw(mask).rounded_rectangle((0, 0, size[0] - 1, size[1] - 1), radius * canvas.unit, fill=255)
    canvas.image.paste(wallpaper(number, *size), box[:2], mask)
    canvas.widget("image", box)


def system_bars(canvas: Canvas, rng: random.Random) -> None:
    """A status bar and a navigation bar, each drawn at another width and stretched to that of the canvas.

    Each of them is missing with a probability of 0.1.
    """
    if rng.random() < 0.9:
        _stretched(canvas, rng, 0.0, rng.uniform(11, 18), "status_bar")
    if rng.random() < 0.9:
        tall = rng.choice((rng.uniform(9, 15), rng.uniform(20, 28)))
        _stretched(canvas, rng, canvas.h - tall, tall, "navigation_bar")


def _stretched(canvas: Canvas, rng: random.Random, y: float, tall: float, kind: str) -> None:
    size = (max(4, canvas.px(tall)), round(canvas.size[1] * rng.uniform(0.75, 1.4)))
    strip = Canvas((canvas.size[0], size[1]), canvas.theme)
    strip.unit, strip.h, strip.w = canvas.unit, tall, size[1] / canvas.unit
    ground = rng.choice((canvas.theme.background, canvas.theme.bar, (0, 0, 0), (255, 255, 255), any_colour(rng, 0.6)))
    strip.rect(0, 0, strip.w + 1, tall + 1, ground)
    ink = mix(readable_on(ground), ground, rng.uniform(0, 0.3))
    (_status if kind == "status_bar" else _navigation)(strip, rng, tall, ink)
    bar = strip.image.crop((0, 0, size[1], size[0])).resize((canvas.size[1], size[0]), Image.Resampling.BILINEAR)
    top = 0 if kind == "status_bar" else canvas.size[0] - size[0]
    canvas.cover(0, y, canvas.w, tall)
    canvas.image.paste(bar, (0, top))
    canvas.widget(kind, (0, top, canvas.size[1], top + size[0]))


def _status(strip: Canvas, rng: random.Random, tall: float, ink: tuple[int, int, int]) -> None:
    middle, size = tall / 2, min(10.0, tall * 0.65)
    clock = f"{rng.randint(0, 23)}:{rng.randint(0, 59):02d}"
    icons = rng.sample(("battery_level", "signal", "wifi", "bell", "bluetooth"), rng.randint(2, 4))
    icons = [name for name in icons if name in GLYPHS]
    is_left = rng.random() < 0.7
    strip.text(7 if is_left else strip.w - 7, middle, clock, size, ink, "Medium", 0.0 if is_left else 1.0, note=False)
    x = strip.w - 10 if is_left else 10.0
    for name in icons:
        strip.glyph(name, x, middle, size + 1, ink, note=False)
        x += -13 if is_left else 13


def _navigation(strip: Canvas, rng: random.Random, tall: float, ink: tuple[int, int, int]) -> None:
    middle = tall / 2
    if tall < 18:
        wide = strip.w * rng.uniform(0.25, 0.4)
        strip.rect((strip.w - wide) / 2, middle - 1.3, wide, rng.uniform(1.8, 3), ink, 1.5)
        return
    size, places = min(13.0, tall * 0.55), [0.22, 0.5, 0.78]
    if rng.random() < 0.3:
        places.reverse()
    for name, place in zip(("nav_back", "nav_home", "nav_recents"), places, strict=True):
        strip.glyph(name, place * strip.w, middle, size, ink, note=False)
