"""The drawing of what each stage found."""

import numpy as np

from vlm_agent.episodes import WIDGET_KINDS, Widget
from vlm_agent.screens.seen import Block, Part, Text, Understood
from vlm_agent.screens.stages import draw_stages

GREY = np.full((200, 100, 3), 128, np.uint8)
NOTHING = Understood((200, 100), (), (), (), ())


def column(drawing, number: int) -> np.ndarray:
    """The screen in a column, which is 240 wide and 12 apart from the next one, under a heading of 36."""
    return np.asarray(drawing)[36:236, number * 252 : number * 252 + 100]


def test_every_stage_has_a_column_with_the_screen():
    drawing = draw_stages(GREY, NOTHING)
    assert drawing.size == (5 * 252 - 12, 236)
    assert all((column(drawing, number) == GREY).all() for number in range(5))


def test_a_box_is_drawn_in_the_column_of_its_stage_alone():
    box = (0.4, 0.2, 0.2, 0.5)
    part = Part(0, "button", box, "", "settings")
    stages = (
        Understood((200, 100), (Text(box, "设置"),), (), (), ()),
        Understood((200, 100), (), (Widget("switch", box, on=True),), (), ()),
        Understood((200, 100), (), (), (part,), ()),
        Understood((200, 100), (), (), (), (Block(box, (), "a"),)),
    )
    for understood, columns in zip(stages, ((0,), (1,), (2, 3), (4,)), strict=True):
        drawing = draw_stages(GREY, understood)
        assert tuple(number for number in range(5) if (column(drawing, number) != GREY).any()) == columns
        assert (column(drawing, columns[-1])[80, 25:65] != 128).any(axis=1).all()


def test_boxes_beyond_the_edges_and_without_an_area_are_drawn():
    boxes = [(-0.5, -0.5, 0.1, 0.1), (0.9, 0.9, 0.9, 0.9), (0.5, 0.5, 0.0, 0.0)]
    widgets = tuple(Widget(kind, box) for kind in WIDGET_KINDS for box in boxes)
    assert draw_stages(GREY, Understood((200, 100), (), widgets, (), ())).size[1] == 236


def test_a_label_at_the_right_edge_is_whole():
    """Its letters are those of the same label at the left edge."""
    shown = []
    for left in (0.0, 0.95):
        part = Part(0, "icon", (0.5, left, 0.05, 0.05), "", "microphone")
        drawing = draw_stages(GREY, Understood((200, 100), (), (), (part,), ()))
        shown.append((column(drawing, 3)[88:100] == 255).all(axis=2).sum())
    assert shown[0] == shown[1] > 40
