"""Themes: the look and layout of a phone, sampled from its seed."""

import random
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

Colour = tuple[int, int, int]

ACCENTS = (
    (26, 115, 232),
    (0, 137, 123),
    (216, 67, 21),
    (142, 36, 170),
    (46, 125, 50),
    (194, 24, 91),
    (57, 73, 171),
    (0, 131, 143),
)
WALLPAPERS = (
    ((233, 150, 170), (60, 22, 70)),
    ((120, 190, 240), (24, 60, 130)),
    ((250, 190, 110), (130, 50, 70)),
    ((40, 60, 90), (12, 16, 32)),
    ((150, 210, 170), (20, 80, 80)),
    ((190, 170, 230), (60, 50, 120)),
    ((90, 100, 112), (30, 34, 40)),
    ((240, 120, 90), (70, 20, 50)),
)


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours, layout and system UI of a phone. Lengths are in canvas units, 1/208 of the width of an upright phone.

    `icon_shape`: `circle`, `squircle` or `rounded`. `fab_x`: horizontal centre of the floating button, as a fraction of
    the width. `drawer`: app drawer that scrolls (`scroll`), has pages (`pages`), or `none`. `search_at`: the home
    screen's search pill at `top` or `bottom`. `api_level`: Android's API level. `strokes`: a style of `icons.STROKES`.
    """

    dark: bool
    accent: Colour
    background: Colour
    surface: Colour
    ink: Colour
    faint: Colour
    line: Colour
    bar: Colour
    bar_ink: Colour
    font_scale: float
    row: float
    header: float
    gesture_bar: bool
    icon_shape: str
    fab_x: float
    drawer: str
    search_at: str
    wallpaper: int
    api_level: int
    clock: str
    font: str = "Roboto"
    strokes: str = "solid"


def mix(a: Colour, b: Colour, share: float) -> Colour:
    """`a` mixed with a `share` (0 to 1) of `b`."""
    red, green, blue = (round(one + (other - one) * share) for one, other in zip(a, b, strict=True))
    return red, green, blue


def random_colour(rng: random.Random, low: int, high: int) -> Colour:
    """Red, green and blue, sampled in this order, each from `low` to `high`."""
    return rng.randint(low, high), rng.randint(low, high), rng.randint(low, high)


def sample_theme(rng: random.Random) -> Theme:
    """The theme of a demonstration's phone, with Roboto and solid icons."""
    dark = rng.random() < 0.35
    accent = rng.choice(ACCENTS)
    if dark:
        accent = mix(accent, (255, 255, 255), 0.4)
        background, surface, ink, faint, line = (
            (24, 25, 28),
            (44, 46, 51),
            (236, 237, 240),
            (160, 164, 170),
            (58, 60, 66),
        )
    else:
        background = rng.choice(((255, 255, 255), (246, 247, 249), mix((255, 255, 255), accent, 0.05)))
        surface, ink, faint, line = mix(background, accent, 0.09), (28, 29, 32), (96, 100, 106), (222, 224, 228)
    coloured_bar = not dark and rng.random() < 0.4
    return Theme(
        dark=dark,
        accent=accent,
        background=background,
        surface=surface,
        ink=ink,
        faint=faint,
        line=line,
        bar=accent if coloured_bar else background,
        bar_ink=(255, 255, 255) if coloured_bar else ink,
        font_scale=rng.choice((0.96, 1.0, 1.0, 1.06)),
        row=rng.choice((34.0, 37.0, 40.0)),
        header=rng.choice((0.0, 0.0, 0.0, 44.0, 84.0)),
        gesture_bar=rng.random() < 0.35,
        icon_shape=rng.choice(("circle", "circle", "squircle", "rounded")),
        fab_x=rng.choice((0.14, 0.5, 0.86)),
        drawer=rng.choice(("scroll", "pages", "none")),
        search_at=rng.choice(("top", "bottom")),
        wallpaper=rng.randrange(len(WALLPAPERS) * 3),
        api_level=rng.choice((28, 29, 30, 31, 33)),
        clock=f"{rng.randint(1, 12)}:{rng.randint(0, 59):02d}",
    )


@lru_cache(maxsize=48)
def wallpaper(number: int, width: int, height: int) -> Image.Image:
    """One of `3 * len(WALLPAPERS)` pictures of `width` × `height` pixels: a gradient with hills, discs or rays."""
    top, bottom = WALLPAPERS[number // 3]
    share = np.linspace(0, 1, height)[:, None, None]
    gradient = np.asarray(top) * (1 - share) + np.asarray(bottom) * share
    image = Image.fromarray(np.broadcast_to(gradient, (height, width, 3)).astype(np.uint8))
    veil = Image.new("L", (width, height))
    (_hills, _discs, _rays)[number % 3](ImageDraw.Draw(veil), width, height, random.Random(number))
    veil = veil.filter(ImageFilter.GaussianBlur(width / 300))
    image.paste(mix(bottom, (0, 0, 0), 0.25), (0, 0), veil)
    return image


def _hills(pen: ImageDraw.ImageDraw, width: int, height: int, rng: random.Random) -> None:
    for depth, veil in ((0.62, 60), (0.74, 120), (0.85, 200)):
        heights = [depth + rng.uniform(-0.05, 0.05) for _ in range(8)]
        xs = np.linspace(0, width, 60)
        ys = np.interp(xs, np.linspace(0, width, 8), heights) + 0.01 * np.sin(xs / width * 9 + depth * 20)
        pen.polygon([(0, height), *zip(xs.tolist(), (ys * height).tolist(), strict=True), (width, height)], fill=veil)


def _discs(pen: ImageDraw.ImageDraw, width: int, height: int, rng: random.Random) -> None:
    for _ in range(7):
        x, y, r = rng.uniform(0, width), rng.uniform(0, height), rng.uniform(0.1, 0.45) * width
        pen.ellipse((x - r, y - r, x + r, y + r), fill=rng.randint(20, 90))


def _rays(pen: ImageDraw.ImageDraw, width: int, height: int, rng: random.Random) -> None:
    edge = 0.0
    while edge < 2.2 * height:
        wide = rng.uniform(0.05, 0.3) * height
        pen.polygon(
            [(0, edge), (width, edge - 0.8 * height), (width, edge - 0.8 * height + wide), (0, edge + wide)],
            rng.randint(0, 80),
        )
        edge += wide * 1.3
