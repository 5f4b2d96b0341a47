"""Words, icons and switches at random positions on a screen: an element's position does not predict its content."""

import random

from shipped_weights.phone_vlm_tiny.settings import CollageRecipe
from shipped_weights.screens.styles import any_colour, sample_style
from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.drawing.glyphs import GLYPHS
from vlm_agent.simulator.drawing.theme import mix
from vlm_agent.simulator.drawing.widgets import switch
from vlm_agent.simulator.words import APPS, STORE_APPS

FEWEST, MOST = 8, 24
_COLUMNS = 3
_CATALOGUE = tuple({**APPS, **STORE_APPS}.items())


def collage(rng: random.Random, size: tuple[int, int], words: list[str], settings: CollageRecipe) -> Canvas:
    """A screen of `size` (height, width) with `FEWEST` to `MOST` elements, whose texts come from `words`."""
    canvas = Canvas(size, sample_style(rng))
    for _ in range(rng.randint(0, 4)):
        _panel(canvas, rng)
    count = rng.randint(FEWEST, MOST)
    rows = max(8, -(-count // _COLUMNS) + 1)
    for place in rng.sample(range(rows * _COLUMNS), count):
        wide, high = canvas.w / _COLUMNS, (canvas.h - 8) / rows
        x, y = place % _COLUMNS * wide, 4 + place // _COLUMNS * high
        _element(canvas, rng, words, (x, y, wide, high), settings)
    return canvas


def _panel(canvas: Canvas, rng: random.Random) -> None:
    colour = mix(canvas.theme.background, any_colour(rng, 0.9), rng.uniform(0, 0.25))
    x, y = rng.uniform(-20, canvas.w * 0.7), rng.uniform(0, canvas.h * 0.8)
    canvas.rect(x, y, rng.uniform(40, canvas.w), rng.uniform(20, 150), colour, rng.choice((0, 4, 12)))


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
        label, on = rng.choice(words), rng.random() < 0.5
        middle = y + rng.uniform(8, high - 8)
        box = canvas.text(x + 2, middle, label, 11, ink, width=wide - 32)
        canvas.switch(label, on, box, switch(canvas, x + wide - 2, middle, on))
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
