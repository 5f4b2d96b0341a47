"""Boxes and points of a page are those of the part that the viewport shows."""

import pytest

from vlm_agent.devices.browser.phone import VIEWPORT, _element, _point, _widget

HEIGHT, WIDTH = VIEWPORT["height"], VIEWPORT["width"]


@pytest.mark.parametrize(
    ("corners", "box"),
    [
        ((0, 0, WIDTH, HEIGHT), (0, 0, 1, 1)),
        ((-WIDTH, -HEIGHT, WIDTH / 2, HEIGHT / 4), (0, 0, 0.25, 0.5)),
        ((WIDTH / 2, HEIGHT / 2, 3 * WIDTH, 2 * HEIGHT), (0.5, 0.5, 0.5, 0.5)),
    ],
    ids=["whole", "over the top left", "over the bottom right"],
)
def test_an_element_or_widget_has_the_box_that_the_viewport_shows(corners, box):
    assert _element("Buy", *corners).box == box
    assert _widget("switch", True, *corners).box == box


def test_a_point_at_an_edge_of_the_screen_is_in_the_viewport():
    assert _point((0.0, 0.0)) == (0, 0)
    assert _point((0.5, 0.25)) == (WIDTH / 4, HEIGHT / 2)
    assert _point((1.0, 1.0)) == (WIDTH - 1, HEIGHT - 1)
