"""Texts and widgets become parts: which text names which widget."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.episodes import WIDGET_KINDS, Widget
from vlm_agent.screens.matching import make_parts, match
from vlm_agent.screens.seen import Part, Text, reading_order

PHONE = (2000, 1000)


def pixels(top: float, left: float, bottom: float, right: float) -> tuple[float, float, float, float]:
    """A box in fractions of `PHONE`."""
    return (top / 2000, left / 1000, (bottom - top) / 2000, (right - left) / 1000)


def parts(*things: Text | Widget) -> list[tuple[str, str]]:
    """(kind, text) of each part, in order."""
    return [(part.kind, part.text) for part in _parts(*things)]


def _parts(*things: Text | Widget) -> tuple[Part, ...]:
    texts = [thing for thing in things if isinstance(thing, Text)]
    return make_parts(texts, [thing for thing in things if isinstance(thing, Widget)], PHONE)


def test_the_text_in_a_button_is_its_text():
    assert parts(
        Widget("button", pixels(100, 100, 200, 500)),
        Text(pixels(130, 200, 170, 400), "Save"),
        Text(pixels(300, 200, 340, 400), "Or"),
    ) == [("button", "Save"), ("text", "Or")]


def test_a_text_in_nested_widgets_belongs_to_the_smallest():
    assert parts(
        Widget("spinner", pixels(0, 0, 400, 1000)),
        Widget("button", pixels(100, 100, 200, 500)),
        Text(pixels(130, 200, 170, 400), "Save"),
    ) == [("spinner", ""), ("button", "Save")]


def test_the_name_under_an_app_icon_names_it_and_the_icon_alone_is_touched():
    icon = Widget("image", pixels(100, 100, 250, 250))
    (part,) = _parts(icon, Text(pixels(265, 110, 300, 240), "Camera"))
    assert (part.text, part.box) == ("Camera", icon.box)


def test_a_row_of_icons_is_not_confused():
    icons = [Widget("image", pixels(100, left, 250, left + 150)) for left in (50, 300, 550, 800)]
    names = [Text(pixels(265, left, 300, left + 150), f"App {left}") for left in (50, 300, 550, 800)]
    assert parts(*icons, *names) == [("image", f"App {left}") for left in (50, 300, 550, 800)]


def test_a_text_beside_an_icon_is_one_part_with_it():
    (part,) = _parts(
        Widget("image", pixels(300, 50, 360, 110)),
        Text(pixels(290, 170, 325, 400), "Network"),
        Text(pixels(340, 170, 370, 500), "Wi-Fi, VPN"),
    )
    assert part.text == "Network Wi-Fi, VPN"
    assert part.box == pytest.approx(pixels(290, 50, 370, 500))


def test_the_title_of_the_app_bar_does_not_name_its_back_button():
    back = Widget("button", pixels(100, 30, 160, 90))
    title = Text(pixels(105, 150, 155, 400), "Network")
    assert parts(back, title) == [("button", ""), ("text", "Network")]


def test_the_label_of_a_row_names_its_switch_and_not_its_icon():
    assert parts(
        Widget("button", pixels(310, 50, 370, 110)),
        Text(pixels(310, 170, 350, 300), "Wi-Fi"),
        Widget("switch", pixels(310, 850, 370, 960), on=True),
    ) == [("button", ""), ("switch", "Wi-Fi")]


def test_the_letter_on_an_avatar_and_the_name_beside_it_are_one_part():
    assert parts(
        Widget("image", pixels(300, 50, 420, 170)),
        Text(pixels(340, 95, 380, 125), "R"),
        Text(pixels(310, 220, 350, 400), "Rosa"),
        Text(pixels(370, 220, 400, 600), "Dentist on Friday"),
    ) == [("image", "R Rosa Dentist on Friday")]


def test_a_tile_of_a_gallery_has_the_name_under_it():
    tiles = [Widget("image", pixels(300, left, 700, left + 440)) for left in (40, 520)]
    texts = [Text(pixels(715, left, 750, left + 100), name) for left, name in ((40, "Rome"), (520, "Lima"))]
    counts = [Text(pixels(765, left, 795, left + 150), "6 photos") for left in (40, 520)]
    inside = Text(pixels(500, 300, 540, 400), "SALE")
    found = _parts(*tiles, *texts, *counts, inside)
    assert [(part.kind, part.text) for part in found] == [
        ("image", "Rome 6 photos"),
        ("image", "Lima 6 photos"),
        ("text", "SALE"),
    ]
    assert found[0].box == tiles[0].box


def test_only_the_nearest_of_the_texts_around_a_widget_names_it():
    box = Widget("check_box", pixels(300, 400, 360, 460), on=True)
    right, left = Text(pixels(310, 480, 350, 600), "Dark"), Text(pixels(310, 200, 350, 300), "Light")
    assert parts(box, right, left) == [("text", "Light"), ("check_box", "Dark")]


def test_a_slider_has_the_text_above_it():
    assert parts(Text(pixels(300, 50, 340, 300), "Volume"), Widget("seek_bar", pixels(360, 50, 400, 900))) == [
        ("seek_bar", "Volume")
    ]


def test_a_switch_has_the_lines_at_the_other_end_of_its_row():
    switch = Widget("switch", pixels(320, 850, 380, 960), on=False)
    found = _parts(
        Text(pixels(100, 50, 140, 300), "Sound"),
        Text(pixels(310, 50, 350, 200), "Wi-Fi"),
        Text(pixels(360, 50, 390, 300), "Not connected"),
        Text(pixels(520, 50, 560, 300), "Bluetooth"),
        switch,
    )
    assert [(part.kind, part.text) for part in found] == [
        ("text", "Sound"),
        ("switch", "Wi-Fi Not connected"),
        ("text", "Bluetooth"),
    ]
    assert found[1].box == switch.box
    assert found[1].on is False


def test_switches_in_a_list_take_their_own_row():
    rows = range(100, 1700, 160)
    widgets = [Widget("switch", pixels(row, 850, row + 60, 960), on=bool(row % 3)) for row in rows]
    texts = [Text(pixels(row + 10, 50, row + 50, 300), f"Row {row}") for row in rows]
    assert parts(*widgets, *texts) == [("switch", f"Row {row}") for row in rows]


def test_radio_buttons_have_the_text_on_their_right():
    rows = range(100, 700, 120)
    widgets = [Widget("radio_group", pixels(row, 50, row + 60, 110), on=row == 220) for row in rows]
    texts = [Text(pixels(row + 10, 140, row + 50, 500), f"Row {row}") for row in rows]
    assert parts(*texts, *widgets) == [("radio_group", f"Row {row}") for row in rows]


def test_everything_in_the_status_bar_is_one_part():
    assert parts(
        Widget("status_bar", pixels(0, 0, 80, 1000)),
        Text(pixels(20, 40, 60, 140), "12:30"),
        Text(pixels(20, 880, 60, 960), "87%"),
    ) == [("status_bar", "12:30 87%")]


def test_an_image_of_a_line_of_text_is_that_text():
    assert parts(Widget("image", pixels(102, 101, 138, 398)), Text(pixels(100, 100, 140, 400), "Hello")) == [
        ("text", "Hello")
    ]


def test_of_widgets_in_one_place_the_most_certain_remains():
    box, near = pixels(100, 100, 200, 300), pixels(102, 100, 201, 303)
    assert parts(Widget("image", box, score=0.4), Widget("button", near, score=0.9)) == [("button", "")]
    assert parts(Widget("switch", box, score=0.9, on=True), Widget("button", box, score=0.9)) == [("switch", "")]


def test_the_picture_in_a_button_belongs_to_it_and_a_button_in_a_picture_does_not():
    outer, inner = pixels(100, 100, 200, 600), pixels(120, 120, 180, 180)
    assert parts(Widget("button", outer), Widget("image", inner)) == [("button", "")]
    assert parts(Widget("image", outer), Widget("button", inner)) == [("image", ""), ("button", "")]
    assert parts(Widget("status_bar", outer), Widget("button", inner)) == [("status_bar", "")]


def test_an_icon_that_was_misread_as_a_letter_has_no_text():
    icon = Widget("button", pixels(300, 800, 350, 850))
    assert parts(icon, Text(pixels(295, 795, 352, 852), "Q")) == [("button", "")]
    key = Widget("button", pixels(300, 700, 400, 800))
    assert parts(key, Text(pixels(330, 735, 370, 765), "7")) == [("button", "7")]
    assert parts(icon, Text(pixels(295, 795, 352, 852), "OK")) == [("button", "OK")]


def test_lines_whose_boxes_overlap_a_little_are_two_lines_of_one_label():
    assert parts(
        Widget("button", pixels(910, 80, 980, 140)),
        Text(pixels(885, 200, 975, 440), "Security"),
        Text(pixels(960, 200, 1040, 450), "Fingerprint"),
    ) == [("button", "Security Fingerprint")]


def test_texts_far_from_a_widget_stay_alone():
    assert parts(Widget("image", pixels(100, 100, 200, 200)), Text(pixels(900, 100, 940, 400), "Far")) == [
        ("image", ""),
        ("text", "Far"),
    ]


FRACTIONS = st.floats(0, 1, width=32)
BOXES = st.tuples(FRACTIONS, FRACTIONS, FRACTIONS, FRACTIONS).map(
    lambda box: (box[0], box[1], min(box[2], 1 - box[0]), min(box[3], 1 - box[1]))
)
TEXTS = st.builds(Text, BOXES, st.text("ab \n", min_size=2, max_size=5).filter(lambda text: len(text.strip()) != 1))
WIDGETS = st.builds(Widget, st.sampled_from(WIDGET_KINDS), BOXES, st.sampled_from((None, True, False)))
SIZES = st.tuples(st.integers(1, 20000), st.integers(1, 20000))


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXTS, max_size=12), st.lists(WIDGETS, max_size=12), SIZES)
def test_every_text_belongs_to_at_most_one_widget(texts, widgets, size):
    matches = match(texts, widgets, size)
    used = [text for found in matches for text in found.texts]
    assert len(used) == len(set(used))
    assert len({found.widget for found in matches}) == len(matches)
    assert all(found.texts for found in matches)
    assert all(0 <= text < len(texts) for text in used)


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXTS, max_size=12), st.lists(WIDGETS, max_size=12), SIZES)
def test_parts_are_numbered_and_hold_every_text_once(texts, widgets, size):
    found = make_parts(texts, widgets, size)
    assert [part.id for part in found] == list(range(len(found)))
    assert all(part.kind == "text" or part.kind in WIDGET_KINDS for part in found)
    words = sorted(character for text in texts for character in text.text if not character.isspace())
    assert sorted(character for part in found for character in part.text if not character.isspace()) == words
    assert all(0 <= side <= 1 for part in found for side in part.box[:2])


@given(st.lists(BOXES, max_size=20))
def test_the_reading_order_is_a_permutation(boxes):
    assert sorted(reading_order(boxes)) == list(range(len(boxes)))


def test_rows_are_read_from_left_to_right():
    boxes = [(0.21, 0.5, 0.05, 0.1), (0.2, 0.1, 0.05, 0.1), (0.1, 0.7, 0.05, 0.1), (0.4, 0.0, 0.05, 0.1)]
    assert reading_order(boxes) == [2, 1, 0, 3]
