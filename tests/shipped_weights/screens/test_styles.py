"""Styles of pretraining screens: any typeface and icon strokes, with correct annotations."""

import random

import numpy as np
import pytest

from shipped_weights.phone_vlm_tiny.drawn.collage import FEWEST, collage
from shipped_weights.phone_vlm_tiny.drawn.screens import random_walk
from shipped_weights.phone_vlm_tiny.settings import CollageRecipe, RandomWalkRecipe
from shipped_weights.screens.styles import SIZES, readable_on, sample_style
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.drawing.canvas import Canvas
from vlm_agent.simulator.drawing.fonts import FAMILIES, WEIGHTS, font
from vlm_agent.simulator.drawing.icons import STROKES, glyph_mask
from vlm_agent.simulator.drawing.theme import sample_theme
from vlm_agent.simulator.drawing.widgets import Row

WORDS = ["red", "lamp", "Paris"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_typeface_has_every_weight(family):
    ink = {weight: sum(font(f"{family}-{weight}", 40).getmask("Settings")) for weight in WEIGHTS}
    assert ink["Regular"] < ink["Medium"] <= ink["Bold"]


def test_strokes_change_an_icons_weight_and_not_its_place():
    masks = {strokes: np.asarray(glyph_mask("folder", 48, strokes), float) for strokes in STROKES}
    ink = {strokes: mask.sum() for strokes, mask in masks.items()}
    assert ink["outlined"] < ink["thin"] < ink["solid"] < ink["heavy"]
    for mask in masks.values():
        rows, columns = np.nonzero(mask > 127)
        assert abs(rows.mean() - 24) < 5
        assert abs(columns.mean() - 24) < 5


def test_a_theme_changes_only_the_look_of_a_phone():
    plain, styled = SimulatedPhone(5), SimulatedPhone(5, theme=sample_style(random.Random(1)))
    assert plain.theme == sample_theme(random.Random("phone 5"))
    assert (plain.installed, plain.switches, plain.day) == (styled.installed, styled.switches, styled.day)
    assert not np.array_equal(plain.screenshot(), styled.screenshot())


def test_styles_vary():
    styles = [sample_style(random.Random(seed)) for seed in range(60)]
    assert {style.font for style in styles} == set(FAMILIES)
    assert {style.strokes for style in styles} == set(STROKES)
    assert len({style.accent for style in styles}) > 50


def test_a_collage_shows_every_annotated_element():
    rng = random.Random(0)
    high, wide = SIZES[0]
    for _ in range(5):
        canvas = collage(rng, SIZES[0], WORDS, CollageRecipe())
        elements = canvas.elements()
        assert len(elements) >= FEWEST / 2
        for element in elements:
            y, x, height, width = element.box
            rows = slice(round(y * high), round((y + height) * high))
            columns = slice(round(x * wide), round((x + width) * wide))
            patch = np.asarray(canvas.image.convert("L"))[rows, columns]
            assert int(patch.max()) - int(patch.min()) > 15, element


def test_a_seed_determines_a_random_walk_and_walks_end_on_many_screens():
    def left_at(seed: int) -> SimulatedPhone:
        rng = random.Random(seed)
        phone = SimulatedPhone(seed, SIZES[0], sample_style(rng))
        random_walk(phone, rng, WORDS, RandomWalkRecipe())
        return phone

    assert np.array_equal(left_at(3).screenshot(), left_at(3).screenshot())
    phones = [left_at(seed) for seed in range(80)]
    assert len({phone.activity for phone in phones}) > 20
    assert any(phone.shade for phone in phones)
    assert any(phone.popup for phone in phones)
    assert any(phone.focus for phone in phones)


def test_a_switch_is_reported_only_when_it_is_unique_and_fully_visible():
    canvas = Canvas((448, 208), sample_theme(random.Random(0)))
    row = Row("Wifi", switch=True)
    row.draw(canvas, 100)
    assert canvas.states == {"Wifi": True}
    Row("Wifi", switch=False).draw(canvas, 200)
    assert canvas.states == {}, "two switches with one label"
    canvas = Canvas((448, 208), sample_theme(random.Random(0)))
    row.draw(canvas, 100)
    canvas.cover(170, 90, 38, 60)
    assert canvas.states == {}, "its toggle is covered"
    canvas = Canvas((448, 208), sample_theme(random.Random(0)))
    Row("Wifi and everything that has to do with it", switch=True).draw(canvas, 100)
    assert canvas.states == {}, "its label is cut off"
    canvas = Canvas((448, 208), sample_theme(random.Random(0)))
    row.draw(canvas, 100)
    canvas.dim()
    assert canvas.states == {}, "a dialog is over it"


@pytest.mark.parametrize("ground", [(255, 235, 120), (240, 240, 240), (30, 40, 90), (10, 10, 10)])
def test_text_on_a_coloured_bar_has_contrast(ground):
    assert abs(sum(readable_on(ground)) - sum(ground)) > 250


def test_reported_switch_states_are_those_of_the_phone():
    reported = {}
    for seed in range(300):
        rng = random.Random(seed)
        phone = SimulatedPhone(seed)
        random_walk(phone, rng, WORDS, RandomWalkRecipe())
        for label, on in phone.canvas().states.items():
            if label in phone.switches:
                reported[seed, label] = (on, phone.switches[label])
    assert len(reported) > 20
    assert all(on == real for on, real in reported.values())
