"""Words, icons and controls at random positions on a screen, where a position does not predict its content, or in rows,
where equal names and controls belong to the word beside them. A page is full of words and icons."""

import random
from collections.abc import Callable

from shipped_weights.phone_vlm_tiny.settings import CollageRecipe
from shipped_weights.screens.controls import check_box, radio_button, toggle
from shipped_weights.screens.styles import any_colour, sample_style
from vlm_agent.simulator.drawing.canvas import Box, Canvas
from vlm_agent.simulator.drawing.glyphs import GLYPHS
from vlm_agent.simulator.drawing.theme import mix
from vlm_agent.simulator.words import APPS, STORE_APPS

FEWEST, MOST = 8, 24
_COLUMNS = 3
_TABS = 30
_CATALOGUE = tuple({**APPS, **STORE_APPS}.items())


def collage(rng: random.Random, size: tuple[int, int], words: list[str], settings: CollageRecipe) -> Canvas:
    """A screen of `size` (height, width) with `FEWEST` to `MOST` elements, whose texts come from `words`."""
    canvas = Canvas(size, sample_style(rng))
    for _ in range(rng.randint(0, 4)):
        _panel(canvas, rng)
    if rng.random() < settings.rows:
        _rows(canvas, rng, words)
        if rng.random() < settings.tabs:
            _tabs(canvas, rng, words)
        return canvas
    count = rng.randint(FEWEST, MOST)
    rows = max(8, -(-count // _COLUMNS) + 1)
    for place in rng.sample(range(rows * _COLUMNS), count):
        wide, high = canvas.w / _COLUMNS, (canvas.h - 8) / rows
        x, y = place % _COLUMNS * wide, 4 + place // _COLUMNS * high
        _element(canvas, rng, words, (x, y, wide, high), settings)
    return canvas


def page(rng: random.Random, size: tuple[int, int], word: Callable[[], str]) -> Canvas:
    """A screen of `size` (height, width) full of words, each from `word`, and icons: about 100 of them, so that visual
    tokens learn words several times as fast as from collages."""
    canvas = Canvas(size, sample_style(rng))
    for _ in range(rng.randint(0, 4)):
        _panel(canvas, rng)
    y, high, icons = rng.uniform(6, 14), rng.uniform(15, 24), rng.choice((0.1, 0.3, 0.6))
    while y < canvas.h - 6:
        _line(canvas, rng, y, high, icons, word)
        y += high
    return canvas


def _line(canvas: Canvas, rng: random.Random, y: float, high: float, icons: float, word: Callable[[], str]) -> None:
    """One line of a page, centred on `y`; `icons`: the share of its elements that are icons."""
    ink = mix(canvas.theme.ink, any_colour(rng, 0.6), rng.choice((0, 0, 0.3, 0.6)))
    size, weight = rng.uniform(8.5, 14), rng.choice(("Regular", "Regular", "Medium", "Bold"))
    x = rng.uniform(1, 14)
    while x < canvas.w - 16:
        if rng.random() < icons:
            wide = rng.uniform(11, min(24, high + 3))
            if rng.random() < 0.5:
                glyph, colour = rng.choice(_CATALOGUE)[1]
                colour = colour if rng.random() < 0.5 else any_colour(rng, 0.8)
                canvas.app_icon(glyph, colour, x + wide / 2, y, wide)
            else:
                canvas.glyph(rng.choice(tuple(GLYPHS)), x + wide / 2, y, wide, ink)
            x += wide
        else:
            text = word()
            if x + 0.6 * size * len(text) > canvas.w:
                return
            x = canvas.text(x, y, text, size, ink, weight)[2] / canvas.unit
        x += rng.uniform(3, 16)


def _panel(canvas: Canvas, rng: random.Random) -> None:
    colour = mix(canvas.theme.background, any_colour(rng, 0.9), rng.uniform(0, 0.25))
    x, y = rng.uniform(-20, canvas.w * 0.7), rng.uniform(0, canvas.h * 0.8)
    canvas.rect(x, y, rng.uniform(40, canvas.w), rng.uniform(20, 150), colour, rng.choice((0, 4, 12)))


def _rows(canvas: Canvas, rng: random.Random, words: list[str]) -> None:
    """Rows in one or two columns: a word after an icon or none, often a second line, and at the right end a control, or
    a word or icon that other rows share."""
    columns, high = rng.choice((1, 1, 2)), rng.uniform(24, 46)
    wide, shared = canvas.w / columns, (rng.choice(words), rng.choice(tuple(GLYPHS)))
    trail = rng.choice(("control", "word", "icon", "") if columns == 1 else ("control", "icon", ""))
    lead = rng.random() < 0.6 and (columns == 1 or not trail)
    for place in range(columns * int((canvas.h - _TABS) / high)):
        x, y = 6 + place % columns * wide, _TABS + (place // columns + 0.5) * high
        ink = mix(canvas.theme.ink, any_colour(rng, 0.6), rng.choice((0, 0, 0.4)))
        start = x + 26 * lead
        if lead:
            canvas.glyph(rng.choice(tuple(GLYPHS)), x + 10, y, 16, ink)
        has_second_line = high > 32 and rng.random() < 0.4
        lift = 6 if has_second_line else 0
        label, room = rng.choice(words), x + wide - start - {"word": 52, "": 12}.get(trail, 38)
        box = canvas.text(start, y - lift, label, 12, ink, rng.choice(("Regular", "Medium")), width=room)
        if has_second_line:
            canvas.text(start, y + 8, rng.choice(words), 9.5, canvas.theme.faint, width=room)
        if trail == "control":
            _control(canvas, rng, label, box, x + wide - 12, y)
        elif trail and rng.random() < 0.8:
            if trail == "word":
                canvas.text(x + wide - 12, y, shared[0], 10.5, canvas.theme.accent, "Medium", 1.0, width=40)
            else:
                canvas.glyph(shared[1], x + wide - 20, y, 15, ink)


def _tabs(canvas: Canvas, rng: random.Random, words: list[str]) -> None:
    """A line of tabs at the top. A bar below the selected one, a disc behind it or its colour alone marks it."""
    labels = [rng.choice(words) for _ in range(rng.choice((2, 3, 3, 4)))]
    theme, mark = canvas.theme, rng.choice(("bar", "disc", ""))
    wide, selected = canvas.w / len(labels), rng.randrange(len(labels))
    for index, label in enumerate(labels):
        is_selected, x = index == selected, index * wide
        if is_selected and mark == "disc":
            canvas.rect(x + 4, 3, wide - 8, _TABS - 6, mix(theme.background, theme.accent, 0.3), 10)
        if is_selected and mark == "bar":
            canvas.rect(x + 6, _TABS - 3, wide - 12, 2.5, theme.accent)
        ink = theme.ink if mark == "disc" and is_selected else theme.accent if is_selected else theme.faint
        box = canvas.text(x + wide / 2, _TABS / 2, label, 10.5, ink, "Medium", 0.5, width=wide - 8)
        canvas.tab(label, box, is_selected)


def _control(canvas: Canvas, rng: random.Random, label: str, text: Box, right: float, y: float) -> None:
    """A control of the label with the box `text`, with its right end at `right`, centred on `y`."""
    control = rng.choice((toggle, toggle, check_box, radio_button))(rng, canvas.theme)
    x, top = right - control.wide, y - control.tall / 2
    control.draw(canvas, x, top)
    box = (canvas.px(x), canvas.px(top), canvas.px(right), canvas.px(top + control.tall))
    canvas.switch(label, bool(control.on), text, box)


def _element(
    canvas: Canvas,
    rng: random.Random,
    words: list[str],
    cell: tuple[float, float, float, float],
    settings: CollageRecipe,
) -> None:
    """One element in a `cell` (x, y, width, height; units of the canvas)."""
    x, y, wide, high = cell
    chance = rng.random()
    ink = mix(canvas.theme.ink, any_colour(rng, 0.6), rng.choice((0, 0, 0.3, 0.6)))
    if chance < settings.text:
        text = rng.choice(words)
        if rng.random() < settings.second_word:
            text = f"{text} {rng.choice(words)}"
        size, weight = rng.uniform(9.5, 14), rng.choice(("Regular", "Regular", "Medium", "Bold"))
        x += rng.uniform(1, max(1.5, wide - 5.5 * len(text)))
        width = max(24.0, min(wide * 1.3, canvas.w - x - 2))
        canvas.text(x, y + rng.uniform(6, high - 6), text, size, ink, weight, width=width)
        return
    if chance < settings.text + settings.switch:
        label, middle = rng.choice(words), y + rng.uniform(8, high - 8)
        _control(canvas, rng, label, canvas.text(x + 2, middle, label, 11, ink, width=wide - 32), x + wide - 2, middle)
        return
    size = rng.uniform(18, min(34, high - 2))
    at = (x + size / 2 + rng.uniform(0, wide - size), y + size / 2 + rng.uniform(0, max(0.1, high - size)))
    if chance < settings.text + settings.switch + settings.app_icon:
        name, (glyph, colour) = rng.choice(_CATALOGUE)
        canvas.app_icon(glyph, colour if rng.random() < 0.5 else any_colour(rng, 0.8), *at, size)
        if high > size + 10 and rng.random() < 0.6:
            canvas.text(at[0], at[1] + size / 2 + 6, name, 9.5, ink, align=0.5, width=wide)
    else:
        canvas.glyph(rng.choice(tuple(GLYPHS)), *at, size * 0.8, ink)
