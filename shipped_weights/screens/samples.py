"""An endless stream of screens and their widgets; a sample depends on the seed of the stream and its number alone.

    pixels, widgets = sample(seed=0, number=5000)

Half of the screens are collages, the others pages of simulated phones after a random walk, in a random style. The seeds
of these phones are 48 random bits, so none of them is the phone of a task or a demonstration.
"""

import random
from dataclasses import dataclass

import numpy as np

from shipped_weights.screens.augmentation import change_colours
from shipped_weights.screens.collages import widget_collage, words
from shipped_weights.screens.styles import sample_style
from vlm_agent.episodes import Action, Widget
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.phone import random_popup

SIZES = ((448, 208), (512, 240), (640, 304), (600, 270), (720, 320), (800, 360), (960, 432), (780, 360))
"""(height, width) of the screens, in pixels."""

Sample = tuple[np.ndarray, tuple[Widget, ...]]
"""Pixels, uint8 (height, width, 3), RGB, of a size in `SIZES`, and the widgets on them."""


@dataclass(frozen=True)
class SampleSettings:
    """`collage`: probability of a collage. `augment`: probability that the colours of a whole screen change.
    `most_touches`: the most touches of the walk to a page of a phone."""

    collage: float = 0.5
    augment: float = 0.5
    most_touches: int = 4
    sizes: tuple[tuple[int, int], ...] = SIZES


def sample(seed: int, number: int, settings: SampleSettings | None = None) -> Sample:
    """The sample `number` of the stream `seed`."""
    settings = settings or SampleSettings()
    rng = random.Random(f"screens {seed} {number}")
    size = rng.choice(settings.sizes)
    canvas = widget_collage(rng, size) if rng.random() < settings.collage else phone_screen(rng, size, settings)
    pixels = np.array(canvas.image)
    if rng.random() < settings.augment:
        pixels = change_colours(pixels, rng, 0.2)
    return pixels, canvas.widgets()


def phone_screen(rng: random.Random, size: tuple[int, int], settings: SampleSettings) -> Canvas:
    """A page of a simulated phone after random taps, swipes and typing; sometimes under quick settings or a dialog."""
    phone = SimulatedPhone(rng.getrandbits(48), size, sample_style(rng))
    if rng.random() < 0.85:
        phone.open(rng.choice(phone.installed))
        phone.popup = None
    for _ in range(rng.randint(0, settings.most_touches)):
        _touch(phone, rng)
    chance = rng.random()
    phone.shade = chance < 0.06
    if 0.06 <= chance < 0.12 and phone.focus is None:
        phone.popup = random_popup(phone.front, rng)
    phone.changed()
    return phone.canvas()


def _touch(phone: SimulatedPhone, rng: random.Random) -> None:
    taps = [target.on_tap for target in phone.canvas().targets if target.on_tap is not None]
    if phone.focus is not None and rng.random() < 0.7:
        phone.type_text(words(rng))
    elif rng.random() < 0.3 or not taps:
        direction = rng.choice(((0.75, 0.4), (0.75, 0.4), (0.35, 0.7)))
        phone.perform(Action.swipe((direction[0], 0.5), (direction[1], 0.5)))
    else:
        rng.choice(taps)()
    phone.changed()
