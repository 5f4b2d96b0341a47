"""`edges` finds what stands out, where it is, in pictures of any kind."""

import numpy as np
import pytest

from vlm_agent.errors import UserError
from vlm_agent.screens.widgets import read_widgets
from vlm_agent.screens.widgets.boxes import corners, overlap
from vlm_agent.screens.widgets.edges import reduced
from vlm_agent.simulator import SimulatedPhone


def boxes_of(pixels: np.ndarray) -> list[list[int]]:
    high, wide = pixels.shape[:2]
    found = corners(read_widgets("edges").detect(pixels)) * (high, wide, high, wide)
    return np.rint(found).astype(int).tolist()


def picture(*boxes: tuple[int, int, int, int], size: tuple[int, int] = (400, 200)) -> np.ndarray:
    pixels = np.full((*size, 3), 240, np.uint8)
    for top, left, bottom, right in boxes:
        pixels[top:bottom, left:right] = (30, 90, 160)
    return pixels


@pytest.mark.parametrize("width", [200, 230, 257])
def test_separate_shapes_are_separate_widgets_to_the_pixel_and_in_reading_order(width):
    shapes = [(40, 20, 70, 50), (40, 120, 70, 150), (200, 60, 230, 140)]
    found = boxes_of(picture(*shapes, size=(400, width)))
    assert len(found) == 3
    assert np.abs(np.array(found) - shapes).max() <= 1  # the pixel beside an edge belongs to it, too


def test_letters_of_a_line_are_one_widget_and_two_lines_are_two():
    letters = [(y, x, y + 8, x + 4) for y in (100, 120) for x in range(50, 92, 6)]
    found = boxes_of(picture(*letters))
    assert np.abs(np.array(found) - [(100, 50, 108, 90), (120, 50, 128, 90)]).max() <= 1


def test_a_wide_picture_is_read_at_a_smaller_size_with_boxes_in_fractions():
    [found] = read_widgets("edges").detect(picture((400, 300, 700, 900), size=(2000, 1500)))
    assert found.box == pytest.approx((0.2, 0.2, 0.15, 0.4), abs=0.004)
    assert (found.kind, found.on, found.score) == ("image", None, 1.0)


@pytest.mark.parametrize("size", [(1, 1), (1, 400), (400, 1), (2, 2), (20_000, 60), (300, 900)])
def test_a_picture_of_one_colour_has_no_widget_at_any_size(size):
    assert read_widgets("edges").detect(np.full((*size, 3), 77, np.uint8)) == ()


@pytest.mark.parametrize(
    ("size", "expected"), [((1, 4000), (1, 100)), ((30, 4000), (1, 100)), ((80, 4000), (2, 100)), ((9, 100), (9, 100))]
)
def test_a_reduced_picture_keeps_its_proportions_and_one_row(size, expected):
    assert reduced(np.zeros((*size, 3), np.uint8), 100).shape == (*expected, 3)


def test_most_icons_of_a_simulated_phone_are_found():
    phone = SimulatedPhone(3, (960, 448))
    icons = np.array([element.box for element in phone.elements() if element.type != "TEXT"])
    icons[:, 2:] += icons[:, :2]
    found = corners(read_widgets("edges").detect(phone.screenshot()))
    assert (overlap(icons, found).max(1) >= 0.5).mean() >= 0.6


def test_unknown_names_and_arguments_are_refused():
    with pytest.raises(UserError, match="'edge' is unknown; choose one of phone_widgets_tiny, onnx, edges"):
        read_widgets("edge")
    with pytest.raises(UserError, match="'edges' takes no argument, and got 'x'"):
        read_widgets("edges:x")
