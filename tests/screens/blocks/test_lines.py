"""Border lines and rectangles of drawn screens."""

import numpy as np
import pytest
from helpers.screens.drawn_screens import HEIGHT, WIDTH, draw

from vlm_agent.screens.blocks.lines import Line, find_lines, find_rectangles, predominant_colours, quantise


def rectangles(pixels):
    return find_rectangles(*find_lines(pixels), pixels.shape[:2])


def has(found, wanted, slack=4):
    return any(np.abs(np.subtract(one, wanted)).max() <= slack for one in found)


@pytest.mark.parametrize("radius", [0, 12])
@pytest.mark.parametrize("colours", [("#f2f2f2", "white"), ("#000000", "#1c1c1e"), ("#0a84ff", "#ffcc00")])
def test_a_card_is_a_rectangle_whatever_its_colours_and_corners(radius, colours):
    box = (200, 40, 500, 360)
    assert has(rectangles(draw((box, colours[1]), ground=colours[0], radius=radius)), box)


def test_a_divider_of_one_row_parts_the_screen():
    assert has(rectangles(draw(((300, 0, 301, WIDTH), "#dddddd"))), (300, 0, HEIGHT, WIDTH))


def test_a_divider_need_not_reach_the_edges_of_the_screen_exactly():
    assert has(rectangles(draw(((300, 12, 302, WIDTH - 12), "#cccccc"))), (0, 0, 300, WIDTH))


def test_a_line_with_small_gaps_is_one_line_and_dots_are_none():
    dashed = [((300, left, 302, left + 40), "#999999") for left in range(0, WIDTH, 48)]
    dotted = [((600, left, 602, left + 4), "#999999") for left in range(0, WIDTH, 8)]
    flat, _ = find_lines(draw(*dashed, *dotted))
    assert max(line.length for line in flat) > 350
    assert all(abs(line.at - 301) < 4 for line in flat)


def test_a_gradient_has_no_border():
    ramp = np.linspace(255, 200, HEIGHT).astype(np.uint8)
    pixels = np.repeat(np.repeat(ramp[:, None, None], WIDTH, 1), 3, 2)
    assert rectangles(pixels) == [(0, 0, HEIGHT, WIDTH)]


def test_equal_rows_between_dividers_are_one_list():
    dividers = [((top, 0, top + 1, WIDTH), "#dddddd") for top in range(100, 501, 100)]
    found = rectangles(draw(*dividers))
    assert has(found, (0, 0, 500, WIDTH)) or has(found, (100, 0, 500, WIDTH))
    assert not has(found, (200, 0, 300, WIDTH))


def test_cards_beside_each_other_are_two_rectangles():
    left, right = (200, 12, 500, 194), (200, 206, 420, 388)
    found = rectangles(draw((left, "white"), (right, "white"), ground="#eeeeee"))
    assert has(found, left) and has(found, right)


def test_lines_scale_with_the_picture():
    small = draw(((200, 40, 500, 360), "white"), ground="#dddddd")
    large = np.repeat(np.repeat(small, 4, 0), 4, 1)
    assert has(rectangles(large), (800, 160, 2000, 1440), slack=16)


def test_predominant_colours_are_those_of_large_areas():
    pixels = draw(((100, 0, 700, WIDTH), "#102030"), ((300, 50, 310, 60), "red"))
    assert predominant_colours(pixels).tolist() == [[16, 32, 48], [255, 255, 255]]
    assert set(np.unique(quantise(pixels))) == {0, 128, 255}


@pytest.mark.parametrize("size", [(1, 1), (1, 400), (400, 1), (7, 7), (8, 8), (3, 20_000), (0, 0), (0, 5)])
def test_tiny_and_thin_pictures_have_no_lines(size):
    assert find_lines(np.zeros((*size, 3), np.uint8)) == ([], [])


def test_a_picture_of_20_000_rows_keeps_its_thin_lines():
    pixels = np.full((20_000, 500, 3), 255, np.uint8)
    pixels[9_000:9_002] = 200
    flat, upright = find_lines(pixels)
    assert {round(line.at, -1) for line in flat} == {9_000} and upright == []


def test_one_colour_has_no_lines():
    assert find_lines(np.full((600, 300, 3), 77, np.uint8)) == ([], [])


def test_without_lines_the_screen_is_the_only_rectangle():
    assert find_rectangles([], [], (100, 50)) == [(0, 0, 100, 50)]


def test_a_side_that_covers_little_of_the_height_makes_no_rectangle():
    letters = [Line(200, 120, 150)]
    assert find_rectangles([Line(100, 0, 400), Line(160, 0, 400)], letters, (800, 400))
    assert not any(200 in one for one in find_rectangles([Line(100, 0, 400), Line(300, 0, 400)], letters, (800, 400)))
