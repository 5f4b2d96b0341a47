"""Collages of widgets: screens with every kind of `WIDGET_KINDS`, the rare ones as often as the others.

Half of the collages are forms, rows of a label and a control as apps have them. In the others each widget is placed by
itself: its centre follows a distribution per kind, so that its position predicts its kind no better than on screens of
apps (VisionTasker, section 4.1).
"""

import random
from collections.abc import Callable
from dataclasses import replace

from shipped_weights.screens import controls, sections, surroundings
from shipped_weights.screens.augmentation import change_patch
from shipped_weights.screens.controls import Control
from shipped_weights.screens.sections import words
from shipped_weights.screens.styles import any_colour, readable_on, sample_style
from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.drawing.theme import Theme, mix
from vlm_agent.simulator.words import NAMES

TOP, BOTTOM = 20.0, 30.0
"""Margins (units) that stay free for the bars of the system."""

MAKERS: dict[str, Callable[[random.Random, Theme], Control]] = {
    "check_box": controls.check_box,
    "radio_group": controls.radio_button,
    "spinner": lambda rng, theme: controls.spinner(rng, theme, words(rng)),
    "seek_bar": controls.seek_bar,
    "rating_bar": controls.rating_bar,
    "page_indicator": controls.page_indicator,
    "switch": controls.toggle,
    "edit_text": lambda rng, theme: surroundings.edit_text(rng, theme, words(rng)),
    "text_button": lambda rng, theme: surroundings.text_button(rng, theme, words(rng, 2)),
    "icon_button": surroundings.icon_button,
    "image": lambda rng, theme: surroundings.image(rng, theme, rng.choice(NAMES)[0]),
}
"""What is placed → the function that samples its look."""

WEIGHTS = {
    "check_box": 3, "radio_group": 3, "spinner": 3, "seek_bar": 3, "rating_bar": 3, "page_indicator": 3, "switch": 3,
    "edit_text": 3, "text_button": 2, "icon_button": 2, "image": 2,
}  # fmt: skip

PLACES = {
    "check_box": (0.25, 0.3, 0.5, 0.3), "radio_group": (0.2, 0.25, 0.5, 0.3), "spinner": (0.45, 0.25, 0.35, 0.25),
    "seek_bar": (0.5, 0.08, 0.6, 0.25), "rating_bar": (0.45, 0.25, 0.5, 0.3), "page_indicator": (0.5, 0.1, 0.7, 0.25),
    "switch": (0.85, 0.15, 0.5, 0.3), "edit_text": (0.5, 0.08, 0.35, 0.3), "text_button": (0.5, 0.25, 0.65, 0.3),
    "icon_button": (0.5, 0.4, 0.5, 0.45), "image": (0.4, 0.3, 0.45, 0.3),
}  # fmt: skip
"""Mean and standard deviation of the centre of a widget, of x and of y, as fractions of the screen: estimates from the
layouts of Android apps, not counts of a data set."""

LABELLED = ("check_box", "radio_group", "switch")
_TRIES = 12


def widget_collage(rng: random.Random, size: tuple[int, int]) -> Canvas:
    """A screen of `size` (height, width) pixels, determined by the state of `rng`."""
    canvas = Canvas(size, _theme(rng))
    for _ in range(rng.choice((0, 0, 1, 2, 3))):
        _card(canvas, rng)
    top, bottom = TOP, canvas.h - BOTTOM
    if rng.random() < 0.5:
        top += sections.heading(canvas, rng, top)
    if rng.random() < 0.25:
        bottom -= sections.tabs_below(canvas, rng, bottom)
    if rng.random() < 0.25:
        top += sections.shortcuts(canvas, rng, top)
    (_form if rng.random() < 0.5 else _scatter)(canvas, rng, (top, bottom))
    surroundings.system_bars(canvas, rng)
    return canvas


def _theme(rng: random.Random) -> Theme:
    """A style whose canvas has any colour in a third of the collages."""
    theme = sample_style(rng)
    if rng.random() < 0.67:
        return theme
    ground = any_colour(rng, rng.uniform(0.1, 1.0))
    ink = readable_on(ground)
    return replace(theme, background=ground, ink=ink, faint=mix(ink, ground, 0.35), line=mix(ink, ground, 0.8))


def _card(canvas: Canvas, rng: random.Random) -> None:
    colour = mix(canvas.theme.background, rng.choice((canvas.theme.ink, canvas.theme.accent)), rng.uniform(0.02, 0.1))
    y, tall = rng.uniform(TOP, canvas.h * 0.8), rng.uniform(40, 180)
    inset = rng.choice((0.0, 6.0, 10.0))
    canvas.rect(inset, y, canvas.w - 2 * inset, tall, colour, rng.choice((0, 4, 12)))


def _sample_control(rng: random.Random, theme: Theme) -> tuple[str, Control]:
    name = rng.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))[0]
    return name, MAKERS[name](rng, theme)


def _draw(canvas: Canvas, rng: random.Random, control: Control, x: float, y: float) -> None:
    """Draws a control, half of the time with other brightness, contrast, colours and transparency."""
    if rng.random() < 0.5:
        control.draw(canvas, x, y)
        return
    before = canvas.image.copy()
    control.draw(canvas, x, y)
    area = (canvas.px(x - 4), canvas.px(y - 4), canvas.px(x + control.wide + 4), canvas.px(y + control.tall + 4))
    change_patch(canvas.image, before, area, rng)


def _scatter(canvas: Canvas, rng: random.Random, rows: tuple[float, float]) -> None:
    """Widgets and texts between the `rows` (top, bottom; units), each at a place of its own."""
    taken: list[tuple[float, float, float, float]] = []
    for _ in range(rng.randint(8, 20)):
        name, control = _sample_control(rng, canvas.theme)
        wide = control.wide + (70 if name in LABELLED else 0)
        place = _free_place(canvas, rng, name, (wide, control.tall), rows, taken)
        if place is None:
            continue
        x, y = place
        taken.append((x, y, wide, control.tall))
        _draw(canvas, rng, control, x, y)
        if name in LABELLED and rng.random() < 0.85:
            canvas.text(x + control.wide + 5, y + control.tall / 2, words(rng), 11, width=62)
    for _ in range(rng.randint(0, 8)):
        wide = rng.uniform(30, 120)
        place = _free_place(canvas, rng, "icon_button", (wide, 12), rows, taken)
        if place is not None:
            taken.append((*place, wide, 12))
            weight = rng.choice(("Regular", "Medium", "Bold"))
            canvas.text(place[0], place[1] + 6, words(rng), rng.uniform(9, 13), weight=weight, width=wide)


def _free_place(
    canvas: Canvas,
    rng: random.Random,
    name: str,
    size: tuple[float, float],
    rows: tuple[float, float],
    taken: list[tuple[float, float, float, float]],
) -> tuple[float, float] | None:
    """The top left corner of a place that no other widget takes, None if none was found."""
    mean_x, spread_x, mean_y, spread_y = PLACES[name]
    right, top, bottom = canvas.w - 4 - size[0], rows[0], rows[1] - size[1]
    if right < 4 or bottom < top:
        return None
    for _ in range(_TRIES):
        x = min(max(4.0, rng.gauss(mean_x, spread_x) * canvas.w - size[0] / 2), right)
        y = min(max(top, rng.gauss(mean_y, spread_y) * canvas.h - size[1] / 2), bottom)
        if all(
            x + size[0] + 5 < other[0]
            or other[0] + other[2] + 5 < x
            or y + size[1] + 4 < other[1]
            or other[1] + other[3] + 4 < y
            for other in taken
        ):
            return x, y
    return None


def _form(canvas: Canvas, rng: random.Random, rows: tuple[float, float]) -> None:
    """Rows of a label and a control, below each other between `rows` (top, bottom; units)."""
    margin, y = rng.uniform(6, 18), rows[0] + rng.uniform(0, 12)
    has_lines, gap = rng.random() < 0.3, rng.uniform(3, 14)
    while True:
        name, control = _sample_control(rng, canvas.theme)
        count = rng.randint(2, 4) if name == "radio_group" else 1
        tall = max(control.tall, 14.0) + gap
        if y + tall * count > rows[1]:
            return
        if name == "radio_group":
            _radio_group(canvas, rng, (margin, y, tall), count)
        else:
            _row(canvas, rng, name, control, (margin, y, tall))
        y += tall * count
        if has_lines:
            canvas.line(y, margin)


def _radio_group(canvas: Canvas, rng: random.Random, place: tuple[float, float, float], count: int) -> None:
    """`count` radio buttons in one look below each other, at most one of them chosen."""
    margin, y, tall = place
    chosen, look, is_left = rng.randrange(-1, count), rng.getrandbits(48), rng.random() < 0.75
    for index in range(count):
        control = controls.radio_button(random.Random(look), canvas.theme, index == chosen)
        _labelled(canvas, rng, control, (margin, y + index * tall, tall), is_left)


def _labelled(
    canvas: Canvas, rng: random.Random, control: Control, place: tuple[float, float, float], is_left: bool
) -> None:
    """A control at the left or right end of a row, with its label at the other side."""
    margin, y, tall = place
    x = margin if is_left else canvas.w - margin - control.wide
    _draw(canvas, rng, control, x, y + (tall - control.tall) / 2)
    room = canvas.w - 2 * margin - control.wide - 8
    canvas.text(margin + control.wide + 8 if is_left else margin, y + tall / 2, words(rng), 11.5, width=room)


def _row(canvas: Canvas, rng: random.Random, name: str, control: Control, place: tuple[float, float, float]) -> None:
    margin, y, tall = place
    room = canvas.w - 2 * margin - control.wide
    if name in LABELLED or (name in ("icon_button", "image") and room > 60):
        _labelled(canvas, rng, control, place, rng.random() < {"check_box": 0.65, "switch": 0.1}.get(name, 0.7))
        return
    if room < 0:
        return
    shift = 0.5 if name == "page_indicator" else rng.choice((0.0, 0.0, 0.5, 1.0))
    x = margin + shift * room
    _draw(canvas, rng, control, x, y + (tall - control.tall) / 2)
    if shift != 0.5 and room > 34 and rng.random() < 0.7:
        start = margin if shift else margin + control.wide + 6
        canvas.text(start, y + tall / 2, words(rng), 11, width=room - 8)
