"""Looks of pretraining phones: any typeface, any strokes, and everything on them still annotated."""

import random

import numpy as np
import pytest

from vlm_agent.devices.simulated_phone import SimulatedPhone
from vlm_agent.devices.simulated_phone.collage import FEWEST, collage
from vlm_agent.devices.simulated_phone.fonts import FAMILIES, WEIGHTS, font
from vlm_agent.devices.simulated_phone.icons import STROKES, glyph_mask
from vlm_agent.devices.simulated_phone.styles import SIZES, sample_style
from vlm_agent.devices.simulated_phone.theme import sample_theme
from vlm_agent.devices.simulated_phone.wander import wander

WORDS = ["red", "lamp", "Paris"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_typeface_has_every_weight(family):
    ink = {weight: sum(font(f"{family}-{weight}", 40).getmask("Settings")) for weight in WEIGHTS}
    assert ink["Regular"] < ink["Medium"] <= ink["Bold"]


def test_strokes_change_how_an_icon_looks_and_not_where_it_is():
    masks = {strokes: np.asarray(glyph_mask("folder", 48, strokes), float) for strokes in STROKES}
    ink = {strokes: mask.sum() for strokes, mask in masks.items()}
    assert ink["outlined"] < ink["thin"] < ink["solid"] < ink["heavy"]
    for mask in masks.values():
        rows, columns = np.nonzero(mask > 127)
        assert abs(rows.mean() - 24) < 5
        assert abs(columns.mean() - 24) < 5


def test_a_theme_that_is_given_changes_looks_alone():
    plain, styled = SimulatedPhone(5), SimulatedPhone(5, theme=sample_style(random.Random(1)))
    assert plain.theme == sample_theme(random.Random("phone 5"))
    assert (plain.installed, plain.switches, plain.day) == (styled.installed, styled.switches, styled.day)
    assert not np.array_equal(plain.screenshot(), styled.screenshot())


def test_styles_vary():
    styles = [sample_style(random.Random(seed)) for seed in range(60)]
    assert {style.font for style in styles} == set(FAMILIES)
    assert {style.strokes for style in styles} == set(STROKES)
    assert len({style.accent for style in styles}) > 50


def test_a_collage_holds_what_its_annotations_say():
    rng = random.Random(0)
    canvas = collage(rng, SIZES[0], WORDS)
    elements = canvas.elements()
    assert len(elements) >= FEWEST / 2
    blank = np.array(canvas.theme.background)
    for element in elements:
        y, x, height, width = element.box
        top, left = int(y * SIZES[0][0]), int(x * SIZES[0][1])
        patch = np.asarray(canvas.image)[top : top + int(height * SIZES[0][0]) + 1, left:][:, : int(width * 208) + 1]
        assert (np.abs(patch.astype(int) - blank).sum(-1) > 30).any(), element


def test_a_walk_is_the_same_from_the_same_seed_and_leads_to_many_places():
    def left_at(seed: int) -> SimulatedPhone:
        rng = random.Random(seed)
        phone = SimulatedPhone(seed, SIZES[0], sample_style(rng))
        wander(phone, rng, WORDS)
        return phone

    assert np.array_equal(left_at(3).screenshot(), left_at(3).screenshot())
    phones = [left_at(seed) for seed in range(80)]
    assert len({phone.activity for phone in phones}) > 20
    assert any(phone.shade for phone in phones)
    assert any(phone.popup for phone in phones)
    assert any(phone.focus for phone in phones)


def test_switches_on_the_screen_are_told_with_their_state():
    told = {}
    for seed in range(200):
        rng = random.Random(seed)
        phone = SimulatedPhone(seed)
        wander(phone, rng, WORDS)
        for label, on in phone.canvas().states.items():
            if label in phone.switches:
                told[seed, label] = (on, phone.switches[label])
    assert len(told) > 20
    assert all(on == real for on, real in told.values())
