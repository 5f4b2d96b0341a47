"""The units of taps and elements, on phones whose screenshots have another size."""

import numpy as np
import pytest

from vlm_agent.devices.adb.display import Override, logical_size, read_override
from vlm_agent.devices.adb.phone import AdbPhone
from vlm_agent.devices.adb_daemon.shell.session import Result, output
from vlm_agent.episodes import Action
from vlm_agent.png import encode_png

SMALLER = Override(panel=(2340, 1080), own=(1560, 720))


def test_the_override_is_read_from_wm_size():
    assert read_override("Physical size: 1080x2340\nOverride size: 720x1560\n") == SMALLER
    for text in ("Physical size: 1080x2340\n", "", "Override size: 720x1560", "Physical size: 1x1\nOverride size: 0x9"):
        assert read_override(text) is None


@pytest.mark.parametrize(
    ("picture", "override", "logical"),
    [
        ((2340, 1080), None, (2340, 1080)),
        ((2340, 1080), SMALLER, (1560, 720)),
        ((1080, 2340), SMALLER, (720, 1560)),
        ((1560, 720), SMALLER, (1560, 720)),
        ((1800, 2000), SMALLER, (1800, 2000)),
    ],
    ids=["no override", "panel", "panel, turned", "override", "another display"],
)
def test_only_a_picture_of_the_panel_has_other_units(picture, override, logical):
    assert logical_size(picture, override) == logical


def test_taps_and_elements_are_in_the_units_of_the_override(one_adb, served):
    phone = served.handset.phone
    usual = phone.elements()

    def of_the_panel(_):
        return Result(encode_png(np.repeat(np.repeat(phone.screenshot(), 2, 0), 2, 1)))

    served._shell._commands["screencap"] = of_the_panel
    served._shell._commands["wm"] = lambda _: output("Physical size: 416x896\nOverride size: 208x448")
    with AdbPhone(served.serial, settle_interval=0.0) as watched:
        assert watched.screenshot().shape == (896, 416, 3)
        boxes = {element.text: element.box for element in watched.elements()}
        assert all(
            boxes[one.text] == pytest.approx(one.box, abs=0.01)
            for one in usual
            if one.type == "TEXT" and one.text in boxes
        )
        assert len(boxes) > 3
        watched.perform(Action.tap(0.5, 0.25))
    (tap,) = served.handset.actions
    assert tap.touch_yx == pytest.approx((0.5, 0.25), abs=0.01)
