"""Screens and demonstrations of the simulated phone, and collages of pretraining, do not change.

The published weights were trained on exactly these. Another release of Pillow may draw other pixels; a change
of these digests for any other reason needs new weights.
"""

import hashlib
import random

import numpy as np
import pytest

from shipped_weights.phone_vlm_tiny.drawn.collage import collage
from shipped_weights.phone_vlm_tiny.drawn.screens import draw_screen
from shipped_weights.phone_vlm_tiny.settings import CollageRecipe, DrawnRecipe
from vlm_agent.simulator import SPLITS, SimulatedPhone
from vlm_agent.simulator.demonstrations import simulate_episode
from vlm_agent.simulator.drawing.canvas import Canvas

SIZES = ((448, 208), (640, 304), (208, 448))
TAPS = 3


def digest_of(canvas: Canvas) -> bytes:
    targets = [(one.key, one.hit, one.aim) for one in canvas.targets]
    known = (canvas.elements(), targets, canvas.hidden, canvas.strips, canvas.states)
    return hashlib.sha256(np.array(canvas.image).tobytes() + repr(known).encode()).digest()


def walk(seed: int, size: tuple[int, int]):
    """Every app of a phone, each after some taps, with the keyboard, a dialog or quick settings where they appear."""
    phone = SimulatedPhone(seed, size)
    rng = random.Random(seed)
    yield phone.canvas()
    for app in sorted(phone.installed):
        phone.press_home()
        phone.open(app)
        for _ in range(TAPS):
            taps = [target.on_tap for target in phone.canvas().targets if target.on_tap is not None]
            if taps:
                rng.choice(taps)()
            phone.changed()
            yield phone.canvas()
        phone.shade = rng.random() < 0.3
        phone.changed()
        yield phone.canvas()


def total(canvases) -> str:
    state = hashlib.sha256()
    for canvas in canvases:
        state.update(digest_of(canvas))
    return state.hexdigest()[:16]


WALKS = ("55a3a9c6d17ec418", "a7fd25c843fbd07d", "b0d708b58035be9a")


@pytest.mark.parametrize("seed", range(3))
def test_simulated_screens_keep_their_bytes(seed):
    assert total(walk(seed, SIZES[seed])) == WALKS[seed]


def test_demonstrations_keep_their_goals_actions_and_texts():
    """Points are rounded, because the tangent of another C library may differ in its last bit."""
    state = hashlib.sha256()
    for seed in range(60):
        episode, task = simulate_episode(seed, SPLITS[seed % len(SPLITS)], (208, 96), thoughts=True)
        state.update(repr((episode.goal, episode.subset, task.instance, task.memory)).encode())
        for step in episode.steps:
            action = step.action
            points = [round(value, 6) for point in (action.touch_yx, action.lift_yx) for value in point]
            notes = [(name, step.notes[name]) for name in sorted(step.notes)]
            state.update(repr((action.kind.name, action.text, points, notes, step.activity)).encode())
    assert state.hexdigest()[:16] == "5133f8b0f47b1121"


def test_collages_and_screens_of_pretraining_keep_their_bytes():
    rng = random.Random(3)
    collages = (collage(rng, SIZES[at % 2], ["red", "lamp", "Paris"], CollageRecipe()) for at in range(20))
    assert total(collages) == "7ae17b6676f89201"
    state = hashlib.sha256()
    for seed in range(20):
        screen = draw_screen(random.Random(seed), DrawnRecipe())
        state.update(screen.step.screenshot.tobytes() + repr((screen.elements, screen.switches)).encode())
    assert state.hexdigest()[:16] == "e37e41185f41d5b0"
