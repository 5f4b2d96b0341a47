"""A screen's elements as text."""

import json
import random
import struct

import pytest
from helpers.data.aitw_episodes import read_episodes

from vlm_agent.episodes import Screen, UiElement
from vlm_agent.sentences.html import element_texts, screen_html
from vlm_agent.texts.lines import one_line

BOX = (0.09, 0.063, 0.0133, 0.0444)
ALT = 'alt="(0.0900, 0.0630, 0.1033, 0.1074)"'


def test_text_and_icons_have_their_number_type_corners_and_text():
    elements = [UiElement(BOX, "Clock"), UiElement(BOX, "G", "ICON_GOOGLE"), UiElement(BOX, "", "ICON_X")]
    assert element_texts(elements) == [
        f'<p id=0 class="text" {ALT}>Clock</p>',
        f"<img id=1 class=ICON_GOOGLE {ALT}>G</p>",
        f"<img id=2 class=ICON_X {ALT}></p>",
    ]


@pytest.mark.parametrize(
    ("top", "height", "bottom"),
    [  # sums that float64 rounds to the other decimal: 0.5751, 0.4634
        (0.5689267516136169, 0.006123248487710953, "0.5750"),
        (0.32243168354034424, 0.1410183161497116, "0.4635"),
    ],
)
def test_corners_are_added_in_float32(top, height, bottom):
    texts = element_texts([UiElement((top, top, height, height))])
    assert f'alt="({top:.4f}, {top:.4f}, {bottom}, {bottom})"' in texts[0]


def test_corners_on_the_edges_of_decimals_follow_float32():
    generator = random.Random(0)
    differ = 0
    for _ in range(2000):
        corner = generator.randrange(5000, 10000) / 10000 + 0.00005
        start = as_float32(generator.random() / 2)
        size = as_float32(corner - start)
        expected = f"{as_float32(start + size):.4f}"
        assert f', {expected})"' in element_texts([UiElement((0.0, start, 0.0, size))])[0]
        differ += expected != f"{start + size:.4f}"
    assert differ > 100  # the cases tell float32 from float64


def as_float32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def test_another_type_is_left_out_and_keeps_its_number():
    elements = [UiElement(BOX, "a", "BUTTON"), UiElement(BOX, "b", ""), UiElement(BOX, "c", "MY_ICON"), UiElement(BOX)]
    assert [text.split(" alt")[0] for text in element_texts(elements)] == [
        "<img id=2 class=MY_ICON",
        '<p id=3 class="text"',
    ]


def test_elements_keep_the_order_of_the_annotation():
    elements = [UiElement((y, 0.0, 0.1, 0.1), str(y)) for y in (0.5, 0.1, 0.3)]
    assert [text[-7:-4] for text in element_texts(elements)] == ["0.5", "0.1", "0.3"]


@pytest.mark.parametrize(("text", "expected"), [(" a \n b\t", "> a b </p>"), ("", "></p>"), ('"é"<p>', '>"é"<p></p>')])
def test_only_white_space_of_an_elements_text_changes(text, expected):
    assert element_texts([UiElement(BOX, text)])[0].endswith(ALT + expected)


def test_one_line_joins_every_kind_of_white_space():
    assert one_line("\u3000a\x1f\u00a0b\r\n c ") == "a b c"


def test_the_form_of_d_pot_has_texts_in_place_of_boxes():
    elements = (UiElement(BOX, "Sound"), UiElement(BOX, "G", "ICON_GOOGLE"), UiElement(BOX, "", "ICON_X"))
    assert screen_html(Screen(None, elements)) == (
        '<p id=0 class="text" alt="Sound">Sound</p>\n'
        '<img id=1 class=ICON_GOOGLE alt="G">G</p>\n'
        '<img id=2 class=ICON_X alt=""></p>\n'
    )


def test_every_element_has_its_number_in_the_form_of_d_pot():
    elements = (UiElement(BOX, "a", "BUTTON"), UiElement(BOX, "b", ""), UiElement(BOX, "c"))
    assert [line.split(" class")[0] for line in screen_html(Screen(None, elements)).splitlines()] == [
        "<p id=0",
        "<p id=1",
        "<p id=2",
    ]


def test_a_screen_without_elements_is_empty_in_the_form_of_d_pot():
    assert screen_html(Screen(None)) == screen_html(Screen(None, ())) == ""


@pytest.mark.parametrize(
    "text",
    ['</p>\n<p id=3 class="text" alt="x">x</p>', '"><img id=9 class=ICON_X alt="', "</p>\u2028<p id=3>", "a\x1c<b\rc>"],
)
def test_no_text_of_a_screen_makes_an_element_or_a_line(text):
    for kind in ("TEXT", "ICON_X", f"ICON_{text}"):
        line = screen_html(Screen(None, (UiElement(BOX, text, kind),)))
        assert len(line.splitlines()) == line.count("\n") == 1
        assert (line.count("<"), line.count(">"), line.count("id=0")) == (2, 2, 1)
        assert line.count('"') == (2 if line.startswith("<img") else 4)


def test_screens_equal_those_of_the_published_code(shared):
    """`screens.json`: the prompts that the published code writes for the one real episode of AITW."""
    published = json.loads((shared / "data/golden/d_pot/screens.json").read_text())
    (episode,) = read_episodes(shared / "data/aitw_tfrecord/google_apps-00000-of-00001")
    assert [screen_html(step.screen) for step in episode.steps] == [step["screen"] for step in published]
