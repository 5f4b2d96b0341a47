"""A screen's elements as text."""

import pytest

from vlm_agent.episodes import UiElement
from vlm_agent.sentences.html import element_texts, one_line

BOX = (0.09, 0.063, 0.0133, 0.0444)
ALT = 'alt="(0.0900, 0.0630, 0.1033, 0.1074)"'


def test_text_and_icons_have_their_number_type_corners_and_text():
    elements = [UiElement(BOX, "Clock"), UiElement(BOX, "G", "ICON_GOOGLE"), UiElement(BOX, "", "ICON_X")]
    assert element_texts(elements) == [
        f'<p id=0 class="text" {ALT}>Clock</p>',
        f"<img id=1 class=ICON_GOOGLE {ALT}>G</p>",
        f"<img id=2 class=ICON_X {ALT}></p>",
    ]


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
