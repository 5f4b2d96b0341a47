"""The active tab of drawn rows and of simulated screens."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.screens.drawn_screens import WIDTH, annotated_parts, draw, part
from PIL import Image, ImageDraw, ImageFont

from vlm_agent.screens.blocks import active_tabs
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.apps.clock import Clock

NAMES = ("Home", "Search", "Library", "Me")


def row_of_tabs(inks, top=740, ground="white", underline=None, pill=None, names=NAMES) -> tuple[np.ndarray, list]:
    """Names in a row in the colours `inks`; `underline` and `pill`: (index, colour)."""
    image = Image.fromarray(draw(ground=ground))
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(18)
    wide = WIDTH / len(names)
    parts = []
    for index, (name, ink) in enumerate(zip(names, inks, strict=True)):
        middle = (index + 0.5) * wide
        if pill is not None and pill[0] == index:
            pen.rounded_rectangle((middle - wide * 0.45, top - 12, middle + wide * 0.45, top + 34), 16, pill[1])
        left, up, right, down = map(round, pen.textbbox((middle, top), name, font=font, anchor="mt"))
        pen.text((middle, top), name, fill=ink, font=font, anchor="mt")
        if underline is not None and underline[0] == index:
            pen.rectangle((middle - wide * 0.4, top + 24, middle + wide * 0.4, top + 26), underline[1])
        parts.append(part(index, (up, left, down, right), name))
    return np.array(image), parts


def active_tab(pixels, parts):
    """The one active tab; None without one."""
    found = active_tabs(pixels, parts)
    assert len(found) < 2
    return next(iter(found), None)


@pytest.mark.parametrize("top", [60, 740])
@pytest.mark.parametrize("chosen", range(4))
@pytest.mark.parametrize(
    ("ground", "ink", "chosen_ink"),
    [("white", "#777777", "#d03010"), ("white", "#999999", "#000000"), ("#101014", "#888888", "#40a0ff"),
     ("#ffe0b0", "#303030", "#009060")],
)  # fmt: skip
def test_the_tab_of_another_colour_is_active(top, chosen, ground, ink, chosen_ink):
    inks = [chosen_ink if index == chosen else ink for index in range(4)]
    assert active_tab(*row_of_tabs(inks, top, ground)) == chosen


def test_an_underline_or_a_pill_is_enough():
    assert active_tab(*row_of_tabs(["white"] * 4, 60, "#008577", underline=(2, "white"))) == 2
    assert active_tab(*row_of_tabs(["#333333"] * 4, 740, "#eeeeff", pill=(1, "#b0b0ff"))) == 1


def test_the_active_tab_may_be_read_as_a_button_in_a_row_of_names():
    pixels, parts = row_of_tabs(["#333333"] * 4, 740, "#eeeeff", pill=(1, "#b0b0ff"))
    y, x, tall, wide = parts[1].box
    parts[1] = replace(parts[1], kind="button", box=(y - 0.015, x - 0.03, tall + 0.03, wide + 0.06))
    assert active_tab(pixels, parts) == 1


def test_a_row_in_the_middle_of_the_width_is_not_a_row_of_tabs():
    pixels, parts = row_of_tabs(["#d03010", "#777777", "#777777", "#777777"])
    assert active_tab(pixels, parts) == 0
    narrow = [
        replace(each, box=(each.box[0], 0.3 + 0.3 * each.box[1], each.box[2], 0.3 * each.box[3])) for each in parts
    ]
    assert active_tab(pixels, narrow) is None


def test_an_underline_decides_between_two_coloured_tabs():
    inks = ["#222222", "#ff5000", "#222222", "#ff5000"]
    assert active_tab(*row_of_tabs(inks, 60)) is None
    assert active_tab(*row_of_tabs(inks, 60, underline=(1, "#ff5000"))) == 1


@pytest.mark.parametrize("inks", [["#777777"] * 4, ["red", "blue", "green", "black"]])
def test_equal_tabs_and_tabs_that_all_differ_have_none(inks):
    assert active_tab(*row_of_tabs(inks)) is None


def test_a_row_in_the_middle_of_the_screen_is_no_row_of_tabs():
    assert active_tab(*row_of_tabs(["red", "black", "black", "black"], 400)) is None


def test_two_or_nine_things_are_no_tabs():
    assert active_tab(*row_of_tabs(["red", "black"], names=NAMES[:2])) is None
    assert active_tab(*row_of_tabs(["red", *["black"] * 8], names="abcdefghi")) is None


def test_uneven_rows_are_no_tabs():
    pixels, parts = row_of_tabs(["red", "black", "black", "black"])
    y, x, tall, wide = parts[0].box
    squeezed = [parts[0], replace(parts[1], box=(y, x + wide, tall, wide)), *parts[2:]]
    assert active_tab(pixels, squeezed) is None


def test_rows_of_a_grid_are_no_tabs():
    above, first = row_of_tabs(["red", "black", "black", "black"], 700)
    below, second = row_of_tabs(["black"] * 4, 750)
    both = [*first, *(replace(one, id=one.id + 4) for one in second)]
    assert active_tab(np.minimum(above, below), both) is None


def test_of_two_rows_each_has_its_active_tab():
    above, first = row_of_tabs(["red", "black", "black", "black"], 60)
    below, second = row_of_tabs(["black", "black", "red", "black"], 740)
    parts = [*first, *(replace(one, id=one.id + 4) for one in second)]
    assert active_tabs(np.minimum(above, below), parts) == (0, 6)


def test_the_buttons_of_the_system_are_no_tabs():
    boxes = [(770, left, 786, left + 16) for left in (92, 192, 292)]
    pixels = draw(*((box, colour) for box, colour in zip(boxes, ("black", "red", "black"), strict=True)))
    assert active_tab(pixels, [part(index, box, kind="image") for index, box in enumerate(boxes)]) is None


def test_keys_and_app_icons_are_no_tabs():
    keys = ["#111111", "#111111", "#2060ff", "#111111"]
    assert active_tab(*row_of_tabs(keys, names=("a", "s", "d", "f"))) is None
    boxes = [(700, left, 750, left + 50) for left in (25, 125, 225, 325)]
    colours = ("#d03020", "#d07020", "#808080", "#d04020")
    dock = draw(*zip(boxes, colours, strict=True))
    assert active_tab(dock, [part(index, box, kind="image") for index, box in enumerate(boxes)]) is None


def test_no_parts_and_tiny_pictures_have_no_tab():
    assert active_tab(draw(), []) is None
    _, parts = row_of_tabs(["red", "black", "black", "black"])
    assert active_tab(np.zeros((1, 1, 3), np.uint8), parts) is None


@pytest.mark.parametrize("chosen", ["Alarm", "Clock", "Timer", "Stopwatch"])
def test_the_chosen_tab_of_simulated_clocks_is_found(chosen):
    right = 0
    for seed in range(5):
        phone = SimulatedPhone(seed, (896, 416))
        phone.open("Clock")
        phone.the(Clock).show(chosen)
        phone.popup = None
        phone.changed()
        parts = annotated_parts(phone)
        active = active_tab(phone.screenshot(), parts)
        right += active is not None and parts[active].text == chosen
    assert right == 5
