"""The units of taps and elements, on phones whose screenshots have another size."""

import numpy as np
import pytest

from vlm_agent.devices.adb.display import CAPTURES, Sizes, is_whole, logical_size, read_sizes
from vlm_agent.devices.adb.phone import AdbPhone
from vlm_agent.devices.errors import DeviceError
from vlm_agent.episodes import Action
from vlm_agent.files.png import encode_png
from vlm_agent.simulator.adb_daemon.shell.session import Result, failure, output

SMALLER = Sizes(panel=(2340, 1080), own=(1560, 720))
PANEL = Sizes(panel=(2340, 1080), own=(2340, 1080))
QUICK = {"settle_interval": 0.0, "patience": 5.0}


def test_the_sizes_are_read_from_wm_size():
    assert read_sizes("Physical size: 1080x2340\nOverride size: 720x1560\n") == SMALLER
    assert read_sizes("Physical size: 1080x2340\n") == PANEL
    assert read_sizes("Physical size: 1080x2340\nOverride size: 0x9\n") == PANEL
    for text in ("", "Override size: 720x1560", "Physical size: 0x9"):
        assert read_sizes(text) is None


@pytest.mark.parametrize(
    ("picture", "sizes", "logical"),
    [
        ((2340, 1080), None, (2340, 1080)),
        ((2340, 1080), SMALLER, (1560, 720)),
        ((1080, 2340), SMALLER, (720, 1560)),
        ((1560, 720), SMALLER, (1560, 720)),
        ((720, 1560), SMALLER, (720, 1560)),
        ((1080, 2340), PANEL, (1080, 2340)),
    ],
    ids=["unknown", "panel", "panel, turned", "override", "override, turned", "no override"],
)
def test_only_a_picture_of_the_panel_has_other_units(picture, sizes, logical):
    assert logical_size(picture, sizes) == logical


@pytest.mark.parametrize("picture", [(1800, 2000), (596, 976), (1170, 540), (2340, 720)])
@pytest.mark.parametrize("sizes", [SMALLER, PANEL])
def test_a_picture_of_another_size_never_scales_a_tap(picture, sizes):
    with pytest.raises(DeviceError, match=f"{picture[1]}×{picture[0]} pixels is not one of a screen of"):
        logical_size(picture, sizes)


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


WARNING = b"[Warning] Multiple displays were found, but no display id was specified!\n"


class Displays:
    """The displays of a served phone: `pictures` by id, the first one is that of `screencap` without an id."""

    def __init__(self, served, pictures, warning=WARNING):
        self.pictures, self._warning, self.asked = pictures, warning, []
        served._shell._commands["screencap"] = self._screencap
        rows = [f"Display {one} (HWC display {n}): port={n}" for n, one in reversed(list(enumerate(pictures)))]
        usual = served._shell._commands["dumpsys"]
        served._shell._commands["dumpsys"] = lambda call: (
            output("\n".join(rows)) if call.words == ["SurfaceFlinger", "--display-id"] else usual(call)
        )

    def _screencap(self, call):
        which = call.words[call.words.index("-d") + 1] if "-d" in call.words else None
        self.asked.append(which)
        if which is None:
            return Result(encode_png(next(iter(self.pictures.values()))()), self._warning)
        return Result(encode_png(self.pictures[which]()))


def black(height, width):
    return lambda: np.zeros((height, width, 3), np.uint8)


def grey(height, width):
    return lambda: np.full((height, width, 3), 90, np.uint8)


@pytest.mark.parametrize("warning", [WARNING, b""])
def test_the_display_of_the_screens_size_is_captured(one_adb, served, warning):
    """A panel on the phone's back, which is off, is the first display."""
    displays = Displays(served, {"11": black(60, 98), "22": served.handset.phone.screenshot}, warning)
    with AdbPhone(served.serial, **QUICK) as phone:
        np.testing.assert_array_equal(phone.screenshot(), served.handset.phone.screenshot())
        phone.perform(Action.tap(0.5, 0.5))
        phone.screenshot()
    (tap,) = served.handset.actions
    assert tap.touch_yx == pytest.approx((0.5, 0.5), abs=0.01)
    assert displays.asked[:3] == [None, "22", "11"]
    assert set(displays.asked[3:]) == {"22"}


def test_of_displays_of_the_same_size_the_one_that_is_on_is_captured(one_adb, served):
    height, width = served.handset.phone.size
    Displays(served, {"11": black(height, width), "22": served.handset.phone.screenshot})
    with AdbPhone(served.serial, **QUICK) as phone:
        np.testing.assert_array_equal(phone.screenshot(), served.handset.phone.screenshot())


def test_of_two_that_are_on_the_primary_one_is_captured(one_adb, served):
    height, width = served.handset.phone.size
    Displays(served, {"11": served.handset.phone.screenshot, "22": grey(height, width)})
    with AdbPhone(served.serial, **QUICK) as phone:
        np.testing.assert_array_equal(phone.screenshot(), served.handset.phone.screenshot())


def test_without_a_display_of_the_screens_size_the_ids_are_named(one_adb, served):
    Displays(served, {"11": black(60, 98), "22": grey(300, 300)})
    with (
        AdbPhone(served.serial, **QUICK) as phone,
        pytest.raises(DeviceError, match=rf"{served.serial} has 98×60 .* 208×448 .*22 \(300×300\), 11 \(98×60\)"),
    ):
        phone.screenshot()


def test_a_phone_that_is_unfolded_shows_its_other_display(one_adb, served):
    phone, sizes = served.handset.phone, ["208x448"]
    displays = Displays(served, {"11": phone.screenshot, "22": black(400, 380)})
    served._shell._commands["wm"] = lambda _: output(f"Physical size: {sizes[-1]}")
    with AdbPhone(served.serial, **QUICK) as watched:
        assert watched.screenshot().shape[:2] == (448, 208)
        displays.pictures.update({"11": black(448, 208), "22": grey(400, 380)})
        sizes.append("380x400")
        assert watched.screenshot().shape[:2] == (400, 380)
        assert watched.logical_size == (400, 380)


def test_one_display_of_another_size_than_the_screen_is_refused(one_adb, served):
    served._shell._commands["wm"] = lambda _: output("Physical size: 1200x2608")
    with AdbPhone(served.serial, **QUICK) as phone, pytest.raises(DeviceError, match=r"208×448 .* 1200×2608"):
        phone.screenshot()
    assert not served.handset.actions


class Faulty:
    """`screencap` of a served phone whose first captures are `faults`."""

    def __init__(self, served, *faults):
        self.faults, self.count, self._phone = faults, 0, served.handset.phone
        served._shell._commands["screencap"] = self._screencap

    def _screencap(self, _):
        self.count += 1
        whole = encode_png(self._phone.screenshot())
        return Result(whole) if self.count > len(self.faults) else self.faults[self.count - 1](whole)


FAULTS = {
    "cut": lambda whole: Result(whole[: len(whole) // 2]),
    "without its end": lambda whole: Result(whole[:-12]),
    "damaged": lambda whole: Result(whole[:60] + bytes([whole[60] ^ 1]) + whole[61:]),
    "empty": lambda whole: Result(),
    "refused": lambda whole: failure("Failed to take screenshot. Status: -1"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_capture_without_a_whole_picture_is_repeated(one_adb, served, fault):
    faulty = Faulty(served, fault, fault)
    with AdbPhone(served.serial, **QUICK) as phone:
        np.testing.assert_array_equal(phone.screenshot(), served.handset.phone.screenshot())
    assert faulty.count == 4


@pytest.mark.parametrize(("fault", "reply"), [("cut", "bytes that are not a whole PNG"), ("refused", "Status: -1")])
def test_a_phone_without_a_whole_picture_is_named(one_adb, served, monkeypatch, fault, reply):
    monkeypatch.setattr("vlm_agent.devices.adb.display._PAUSE_SECONDS", 0.0)
    faulty = Faulty(served, *[FAULTS[fault]] * 9)
    with AdbPhone(served.serial, **QUICK) as phone:
        with pytest.raises(DeviceError, match=f"on {served.serial} returned .*{reply}"):
            phone.screenshot()
        assert faulty.count == CAPTURES


def test_a_warning_before_the_picture_is_none_of_its_bytes(one_adb, served):
    Faulty(served, *[lambda whole: Result(b"[Warning] a display\n" + whole)] * 9)
    with AdbPhone(served.serial, **QUICK) as phone:
        np.testing.assert_array_equal(phone.screenshot(), served.handset.phone.screenshot())


def test_every_cut_of_a_picture_is_noticed():
    whole = encode_png(np.arange(40 * 30 * 3, dtype=np.uint8).reshape(40, 30, 3))
    assert is_whole(whole)
    assert is_whole(whole + b"more")
    # The last four bytes are the checksum of the empty chunk at the end.
    assert not any(is_whole(whole[:end]) for end in range(len(whole) - 4))
