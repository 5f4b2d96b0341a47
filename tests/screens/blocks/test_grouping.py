"""Parts in blocks, and their titles."""

from unittest.mock import patch

import numpy as np
import pytest
from helpers.screens.drawn_screens import annotated_parts, draw, part
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.episodes import WIDGET_KINDS
from vlm_agent.screens.blocks import find_blocks, grouping
from vlm_agent.screens.blocks.lines import find_lines
from vlm_agent.screens.seen import Part
from vlm_agent.simulator import SimulatedPhone

CARDS = draw(((100, 20, 380, 380), "white"), ((400, 20, 700, 380), "white"), ground="#e8e8e8", radius=10)
LINES = find_lines(CARDS)


def members(blocks):
    return [block.parts for block in blocks]


def test_parts_of_a_card_are_a_block_and_its_heading_is_the_title():
    parts = [
        part(0, (120, 40, 144, 160), "Network"),
        part(1, (180, 40, 196, 160), "Wi-Fi"),
        part(2, (180, 320, 200, 360), kind="switch"),
        part(3, (420, 40, 444, 160), "Sound"),
        part(4, (480, 40, 496, 160), "Volume"),
    ]
    blocks = find_blocks(CARDS, parts)
    assert members(blocks) == [(0, 1, 2), (3, 4)]
    assert [block.title for block in blocks] == ["Network", "Sound"]
    assert np.abs(np.subtract(blocks[0].box, (0.125, 0.05, 0.35, 0.9))).max() < 0.01


def test_parts_around_cards_are_blocks_too_and_cards_part_them():
    parts = [
        part(0, (40, 30, 60, 200), "above"),
        part(1, (120, 40, 144, 160), "in"),
        part(2, (180, 40, 196, 160), "in too"),
        part(3, (720, 30, 740, 200), "below"),
    ]
    assert members(find_blocks(CARDS, parts)) == [(0,), (1, 2), (3,)]


def test_a_border_around_one_part_is_no_block():
    field = draw(((100, 20, 150, 380), "#dddddd"))
    parts = [part(0, (112, 40, 138, 200), "Search"), part(1, (300, 20, 320, 200), "Recent")]
    assert members(find_blocks(field, parts)) == [(0, 1)]


def test_bars_are_blocks_of_their_own():
    pixels = draw()
    parts = [
        part(0, (0, 0, 30, 400), kind="status_bar"),
        part(1, (8, 10, 22, 60), "10:44"),
        part(2, (200, 10, 220, 100), "Hello"),
        part(3, (760, 0, 800, 400), kind="navigation_bar"),
    ]
    assert members(find_blocks(pixels, parts)) == [(0, 1), (2,), (3,)]


def test_the_status_bar_is_before_a_page_that_begins_at_the_top_of_the_screen():
    bar = draw(((0, 0, 100, 400), "#3060c0"))
    parts = [
        part(0, (4, 4, 26, 396), "10:44", "status_bar"),
        part(1, (50, 10, 80, 40), kind="button"),
        part(2, (50, 60, 80, 200), "Shop"),
        part(3, (200, 60, 220, 200), "Tent"),
    ]
    assert members(find_blocks(bar, parts)) == [(0,), (1, 2), (3,)]


@pytest.mark.parametrize(
    ("parts", "title"),
    [
        ([part(0, (110, 40, 134, 160), "Files"), part(1, (160, 40, 176, 200), "a.txt")], "Files"),
        ([part(0, (110, 150, 134, 250), "Sign in"), part(1, (160, 40, 176, 200), "Name")], "Sign in"),
        ([part(0, (110, 40, 134, 160), "Deals"), part(1, (112, 300, 130, 370), "More"),
          part(2, (160, 40, 176, 99), "x")], "Deals"),
        # the first line of a list looks like the next one
        ([part(0, (110, 40, 126, 160), "one"), part(1, (160, 40, 176, 160), "two")], ""),
        # icons beside the text
        ([part(0, (110, 40, 134, 64), kind="image"), part(1, (110, 80, 134, 200), "Anna"),
          part(2, (160, 80, 170, 200), "hello")], ""),
        ([part(0, (110, 40, 134, 160), "Wi-Fi"), part(1, (108, 170, 136, 200), kind="switch"),
          part(2, (160, 40, 170, 160), "on")], ""),
        # too far down, and alone
        ([part(0, (260, 40, 284, 160), "low"), part(1, (300, 40, 316, 160), "lower")], ""),
        ([part(0, (110, 40, 134, 160), "alone")], ""),
        # several texts in a row, as in a table or a row of tabs
        ([part(0, (110, 40, 126, 100), "Mo"), part(1, (110, 140, 126, 200), "Tu"), part(2, (110, 240, 126, 300), "We"),
          part(3, (150, 40, 162, 100), "1")], ""),
    ],
)  # fmt: skip
def test_the_title_is_pure_text_at_the_top(parts, title):
    block = next(block for block in find_blocks(CARDS, parts) if 0 in block.parts)
    assert block.title == title


def test_the_time_of_the_status_bar_is_no_title():
    parts = [
        part(0, (6, 10, 20, 60), "10:44"),
        part(1, (50, 10, 80, 120), "News"),
        part(2, (120, 10, 136, 300), "More"),
    ]
    assert [block.title for block in find_blocks(draw(), parts)] == ["News"]


@pytest.mark.parametrize("size", [(1, 1), (2, 5000), (300, 300)])
def test_any_picture_of_one_colour_gives_one_block(size):
    parts = [part(0, (100, 10, 120, 60), "a"), part(1, (300, 10, 320, 60), "b")]
    assert members(find_blocks(np.zeros((*size, 3), np.uint8), parts)) == [(0, 1)]


def test_no_parts_no_blocks():
    assert find_blocks(CARDS, []) == ()


fractions = st.floats(0, 1, allow_nan=False)
any_part = st.builds(
    lambda kind, box, text: (kind, box, text),
    st.sampled_from(("text", *WIDGET_KINDS)),
    st.tuples(fractions, fractions, fractions, fractions),
    st.text(max_size=5),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(any_part, max_size=25), st.randoms(use_true_random=False))
def test_every_part_is_in_exactly_one_block_whatever_the_order_of_parts(drawn, rng):
    parts = [Part(number, *one) for number, one in enumerate(drawn)]
    with patch.object(grouping, "find_lines", lambda _: LINES):  # finding them takes nearly all of the time
        blocks = find_blocks(CARDS, parts)
        assert sorted(number for block in blocks for number in block.parts) == list(range(len(parts)))
        rng.shuffle(parts)
        assert find_blocks(CARDS, parts) == blocks


@pytest.mark.parametrize("seed", range(4))
def test_blocks_of_simulated_screens_are_deterministic_and_part_bar_and_page(seed):
    phone = SimulatedPhone(seed, (896, 416))
    phone.open("News")
    phone.popup = None
    phone.changed()
    pixels, parts = phone.screenshot(), annotated_parts(phone)
    blocks = find_blocks(pixels, parts)
    assert blocks == find_blocks(pixels.copy(), list(parts))
    assert sorted(number for block in blocks for number in block.parts) == list(range(len(parts)))
    where = {parts[number].text: index for index, block in enumerate(blocks) for number in block.parts}
    first_story = next(one.text for one in parts if " in " in one.text)
    assert where["News"] < where[first_story]
