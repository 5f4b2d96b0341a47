"""Styles of screens for training: their typefaces, sizes, colours and strokes vary far more than in demonstrations.

A demonstration's phone (`sample_theme`) uses only Roboto, solid icons and eight accent colours.
"""

import colorsys
import random
from dataclasses import replace

from vlm_agent.simulator.drawing.fonts import FAMILIES
from vlm_agent.simulator.drawing.icons import STROKES
from vlm_agent.simulator.drawing.theme import Colour, Theme, mix, sample_theme

SIZES = ((448, 208), (512, 240), (640, 304), (480, 224), (600, 270), (720, 320))
"""(height, width) of screens for pretraining, in pixels; the model resizes each to its own input size."""


def sample_style(rng: random.Random) -> Theme:
    """A theme with a random typeface and random colours. Half of the themes use Roboto, Android's default typeface."""
    theme = sample_theme(rng)
    accent = any_colour(rng, rng.uniform(0.35, 0.95))
    background = mix((255, 255, 255), accent, rng.uniform(0, 0.15))
    if theme.dark:
        accent = mix(accent, (255, 255, 255), 0.4)
        background = mix((0, 0, 0), accent, rng.uniform(0, 0.2))
    coloured_bar = theme.bar != theme.background
    return replace(
        theme,
        accent=accent,
        background=background,
        surface=mix(background, accent, rng.uniform(0.05, 0.2)),
        bar=accent if coloured_bar else background,
        bar_ink=readable_on(accent) if coloured_bar else theme.ink,
        font_scale=rng.uniform(0.88, 1.2),
        font="Roboto" if rng.random() < 0.5 else rng.choice(FAMILIES),
        strokes="solid" if rng.random() < 0.5 else rng.choice(STROKES),
    )


def readable_on(ground: Colour) -> Colour:
    """White, or black if white on `ground` has too little contrast."""
    red, green, blue = ground
    return (20, 22, 26) if 0.3 * red + 0.59 * green + 0.11 * blue > 150 else (255, 255, 255)


def any_colour(rng: random.Random, value: float) -> Colour:
    """A random hue and saturation; `value` is the brightness, 0 to 1."""
    red, green, blue = colorsys.hsv_to_rgb(rng.random(), rng.uniform(0.3, 1.0), value)
    return round(255 * red), round(255 * green), round(255 * blue)
