"""Sections of apps around the widgets of a collage: an app bar with tabs, a grid of shortcuts, tabs at the bottom."""

import random

from shipped_weights.screens.styles import any_colour, readable_on
from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.drawing.glyphs import GLYPHS
from vlm_agent.simulator.drawing.theme import mix
from vlm_agent.simulator.words import APPS, CITIES, LABELS, NAMES, STORE_APPS, TOPICS

BELOW = 40.0
"""The ground of the tabs at the bottom continues below them by this height, under the bar of the system."""

_TEXTS = (*LABELS, *CITIES, *NAMES, *TOPICS)
_APPS = tuple({**APPS, **STORE_APPS}.values())


def words(rng: random.Random, most: int = 3) -> str:
    """One to `most` words; a few are letters and digits without a meaning."""
    if rng.random() < 0.1:
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(rng.randint(2, 9)))
    return " ".join(rng.choice(_TEXTS) for _ in range(rng.randint(1, most))).capitalize()


def heading(canvas: Canvas, rng: random.Random, y: float) -> float:
    """An app bar that reaches from the top of the screen to below `y`, in a third of the cases with tabs below it;
    returns its height below `y`."""
    theme, middle, x = canvas.theme, y + 16, 12.0
    canvas.rect(0, 0, canvas.w, y + 32, theme.bar)
    if rng.random() < 0.7:
        canvas.glyph(rng.choice(("back", "menu", "close")), 20, middle, 16, theme.bar_ink)
        x = 38.0
    right = canvas.w - 19
    for name in rng.sample(("search", "dots", "share", "heart", "cart", "gear"), rng.randint(0, 3)):
        canvas.glyph(name, right, middle, 15, theme.bar_ink)
        right -= 26
    canvas.text(x, middle, words(rng, 2), 14, theme.bar_ink, "Medium", width=right - x)
    if rng.random() < 0.67:
        return 34.0
    count = rng.randint(2, 4)
    wide, active = canvas.w / count, rng.randrange(count)
    for index in range(count):
        ink, label = theme.accent if index == active else theme.faint, words(rng, 1)
        box = canvas.text((index + 0.5) * wide, y + 48, label, 10, ink, "Medium", 0.5, wide - 4)
        canvas.tab(label, box, index == active)
        if index == active:
            canvas.rect(index * wide + 5, y + 61, wide - 10, 2, theme.accent)
    return 68.0


def tabs_below(canvas: Canvas, rng: random.Random, bottom: float) -> float:
    """Three to five tabs above `bottom`, each an icon over a label; the active one has another colour. Returns their
    height."""
    theme, tall, count = canvas.theme, rng.uniform(28, 38), rng.randint(3, 5)
    ground = rng.choice((theme.surface, theme.background, mix(theme.background, theme.ink, 0.06)))
    canvas.rect(0, bottom - tall, canvas.w, tall + BELOW, ground)
    if rng.random() < 0.5:
        canvas.line(bottom - tall)
    wide, active, side = canvas.w / count, rng.randrange(count), rng.uniform(10, 14)
    for index, name in enumerate(rng.sample(tuple(GLYPHS), count)):
        ink, label = theme.accent if index == active else theme.faint, words(rng, 1)
        canvas.glyph(name, (index + 0.5) * wide, bottom - tall + 4 + side / 2, side, ink)
        box = canvas.text((index + 0.5) * wide, bottom - 6, label, 8.5, ink, "Medium", 0.5, wide - 4)
        canvas.tab(label, box, index == active)
    return tall


def shortcuts(canvas: Canvas, rng: random.Random, y: float) -> float:
    """One or two lines of icons over labels from `y`: app icons, bare icons, or icons on discs. Returns the height."""
    theme, count, look = canvas.theme, rng.randint(3, 5), rng.choice(("app", "bare", "disc"))
    side, pitch = rng.uniform(16, 28), canvas.w / count
    tall, lines = side + rng.uniform(18, 26), rng.randint(1, 2)
    for place in range(count * lines):
        x, top = (place % count + 0.5) * pitch, y + 4 + place // count * tall
        glyph, colour = rng.choice(_APPS)
        if look == "app":
            canvas.app_icon(glyph, colour, x, top + side / 2, side)
        elif look == "bare":
            canvas.glyph(glyph, x, top + side / 2, side * 0.8, theme.ink)
        else:
            ground = any_colour(rng, 0.8)
            canvas.widget("button", canvas.rect(x - side / 2, top, side, side, ground, side / 2))
            canvas.glyph(glyph, x, top + side / 2, side * 0.6, readable_on(ground), is_button=False)
        canvas.text(x, top + side + 7, words(rng, 1), 9, align=0.5, width=pitch - 4)
    return tall * lines + 4
