"""Numbered boxes of elements."""

import numpy as np
from PIL import Image

from vlm_agent.drawing.marks import COLOURS, draw_marks
from vlm_agent.episodes import UiElement


def test_every_box_has_a_number_beside_it_and_its_inside_stays_visible():
    element = UiElement((0.25, 0.25, 0.5, 0.5), "text")
    drawn = np.asarray(draw_marks(Image.new("RGB", (200, 400), "white"), [element]))
    assert (drawn[98:102, 60] == COLOURS[0]).all(axis=1).any()  # the upper edge
    assert (drawn[110:290, 60:140] == 255).all()
    beside = drawn[100:115, 35:50].reshape(-1, 3)
    assert (beside == COLOURS[0]).all(axis=1).any()


def test_boxes_beyond_the_screen_and_of_negative_size_are_drawn_within_it():
    odd = [UiElement((-1.0, -1.0, 3.0, 3.0)), UiElement((0.9, 0.9, -0.5, -0.5)), UiElement((1.0, 1.0, 0.0, 0.0))]
    assert draw_marks(Image.new("L", (64, 64)), odd).size == (64, 64)


def test_the_screen_itself_is_not_changed():
    screen = Image.new("RGB", (64, 64))
    draw_marks(screen, [UiElement((0.0, 0.0, 1.0, 1.0))])
    assert not np.asarray(screen).any()
