"""`getevent`: listings as Android's documentation prints them (with places of our own), and damaged ones."""

import random
import time

import pytest

from vlm_agent.devices.adb.fingers import (
    CUT,
    LOST,
    NO_PLACE,
    SEVERAL_FINGERS,
    Fingers,
    Gesture,
    LeftOut,
    action_of,
    on_screen,
    read_rotation,
)
from vlm_agent.devices.adb.getevent import Lines, Panel, read_event, read_panels

LISTING = """\
add device 1: /dev/input/event6
  name:     "compass"
  events:
    ABS (0003): ABS_X                 : value 0, min -4096, max 4096, fuzz 0, flat 0, resolution 0
                ABS_Y                 : value 0, min -4096, max 4096, fuzz 0, flat 0, resolution 0
  input props:
    <none>
add device 2: /dev/input/event1
  name:     "gpio-keys"
  events:
    KEY (0001): KEY_VOLUMEDOWN        KEY_POWER
could not get driver version for /dev/input/mice, Not a typewriter
add device 3: /dev/input/event2
  name:     "made_up_touch"
  events:
    KEY (0001): BTN_TOUCH
    ABS (0003): ABS_MT_SLOT           : value 0, min 0, max 9, fuzz 0, flat 0, resolution 0
                ABS_MT_TOUCH_MAJOR    : value 0, min 0, max 15, fuzz 0, flat 0, resolution 0
                ABS_MT_POSITION_X     : value 0, min 0, max 999, fuzz 0, flat 0, resolution 0
                ABS_MT_POSITION_Y     : value 0, min 0, max 1999, fuzz 0, flat 0, resolution 0
                ABS_MT_TRACKING_ID    : value 0, min 0, max 65535, fuzz 0, flat 0, resolution 0
  input props:
    INPUT_PROP_DIRECT
add device 4: /dev/input/event3
  name:     "a touch pad"
  events:
    ABS (0003): ABS_MT_POSITION_X     : value 0, min 0, max 99, fuzz 0, flat 0, resolution 0
                ABS_MT_POSITION_Y     : value 0, min 0, max 99, fuzz 0, flat 0, resolution 0
  input props:
    INPUT_PROP_POINTER
"""

PANEL = Panel("/dev/input/event2", (0, 999), (0, 1999))

TAP = """\
[   41234.500000] /dev/input/event2: EV_ABS       ABS_MT_TRACKING_ID   000000c5
[   41234.500000] /dev/input/event2: EV_KEY       BTN_TOUCH            DOWN
[   41234.500000] /dev/input/event2: EV_ABS       ABS_MT_POSITION_X    000000fa
[   41234.500000] /dev/input/event2: EV_ABS       ABS_MT_POSITION_Y    000005dc
[   41234.500000] /dev/input/event2: EV_ABS       ABS_MT_PRESSURE      00000031
[   41234.500000] /dev/input/event2: EV_SYN       SYN_REPORT           00000000
[   41234.600000] /dev/input/event2: EV_ABS       ABS_MT_TRACKING_ID   ffffffff
[   41234.600000] /dev/input/event2: EV_KEY       BTN_TOUCH            UP
[   41234.600000] /dev/input/event2: EV_SYN       SYN_REPORT           00000000
"""


def gestures(text: str) -> list[Gesture | LeftOut]:
    fingers = Fingers(PANEL)
    events = [event for line in text.splitlines() if (event := read_event(line)) is not None]
    found = [fingers.take(event) for event in events if event.path == PANEL.path]
    return [one for one in (*found, fingers.end()) if one is not None]


def events(*steps: str, start: float = 10.0) -> str:
    """`X:1` …, one event each; `;` is a SYN_REPORT after 0.1 s."""
    names = {"S": "ABS_MT_SLOT", "T": "ABS_MT_TRACKING_ID", "X": "ABS_MT_POSITION_X", "Y": "ABS_MT_POSITION_Y"}
    lines = []
    for step in steps:
        at = f"[ {start:.6f}] {PANEL.path}:"
        if step == ";":
            lines.append(f"{at} EV_SYN SYN_REPORT 00000000")
            start += 0.1
        else:
            code, value = step.split(":")
            lines.append(f"{at} EV_ABS {names[code]} {int(value) & 0xFFFFFFFF:08x}")
    return "\n".join(lines)


def test_of_several_devices_only_touch_screens_are_panels():
    assert read_panels(LISTING) == {PANEL.path: PANEL}
    assert read_panels(LISTING.replace("ABS_MT_SLOT", "ABS_MT_TOOL")) == {}


def test_a_tap_a_long_press_and_a_swipe():
    (tap,) = gestures(TAP)
    action = action_of(tap, 0)
    assert action.is_tap
    assert action.touch_yx == pytest.approx((0.75, 0.25), abs=0.001)
    (press,) = gestures(TAP.replace("41234.6", "41235.1"))
    assert action_of(press, 0).name == "long_press"
    (swipe,) = gestures(events("T:1", "X:500", "Y:1600", ";", "Y:900", ";", "Y:400", ";", "T:-1", ";"))
    assert action_of(swipe, 0).direction == "up"


def test_lines_of_a_terminal_are_the_same_events():
    assert gestures(TAP.replace("\n", "\r\n")) == gestures(TAP)


def test_an_axis_that_does_not_change_is_not_reported_again():
    first = ("T:1", "X:250", "Y:1500", ";", "T:-1", ";")
    found = gestures(events(*first, "T:2", "Y:500", ";", "T:-1", ";", "T:3", ";", "T:-1", ";"))
    assert [round(one.touch[0], 2) for one in found] == [0.75, 0.25, 0.25]
    assert {round(one.touch[1], 2) for one in found} == {0.25}


def test_a_gesture_with_two_fingers_is_left_out_whole_and_the_next_one_counts():
    two = ("T:1", "X:250", "Y:1500", ";", "S:1", "T:2", "X:700", "Y:900", ";", "S:0", "T:-1", ";", "S:1", "T:-1", ";")
    first, second = gestures(events(*two, "S:0", "T:3", ";", "T:-1", ";"))
    assert first == LeftOut(SEVERAL_FINGERS)
    assert action_of(second, 0).is_tap


def test_what_is_lost_cut_or_has_no_place_is_left_out_by_name():
    down = events("T:1", "X:250", "Y:1500", ";")
    assert gestures(down) == [LeftOut(CUT)]
    assert gestures(f"{down}\n[ 11.0] {PANEL.path}: EV_SYN SYN_DROPPED 00000000\n" + events("T:-1", ";")) == [
        LeftOut(LOST)
    ]
    assert gestures(events("T:1", "X:250", ";", "T:-1", ";")) == [LeftOut(NO_PLACE)]  # y was never reported
    assert gestures(events("T:1", "X:5000", "Y:1", ";", "T:-1", ";")) == [LeftOut(NO_PLACE)]
    assert gestures(events("T:-1", ";")) == []  # began before the recording


def test_two_taps_between_which_the_lift_was_lost_are_no_swipe():
    first = ("T:1", "X:100", "Y:200", ";")
    second = ("T:2", "X:900", "Y:2000", ";", "T:-1", ";")
    lost, tap = gestures(events(*first, *second))
    assert lost == LeftOut(LOST)
    assert [tap] == gestures(events(*second, start=10.1))


def test_a_finger_that_draws_a_circle_has_no_action():
    (circle,) = gestures(events("T:1", "X:500", "Y:1000", ";", "X:900", ";", "X:510", ";", "T:-1", ";"))
    assert action_of(circle, 0) is None


@pytest.mark.parametrize(
    ("rotation", "expected"),
    # The finger is near the panel's top left corner.
    [(0, (0.1, 0.2)), (1, (0.8, 0.1)), (2, (0.9, 0.8)), (3, (0.2, 0.9))],
)
def test_places_follow_the_rotation_of_the_screen(rotation, expected):
    assert on_screen((0.1, 0.2), rotation) == pytest.approx(expected)
    up_on_panel = Gesture(0.2, (0.8, 0.5), (0.2, 0.5), 0.6)
    assert action_of(up_on_panel, rotation).direction == ("up", "left", "down", "right")[rotation]


def test_the_rotation_is_read_from_both_forms_of_dumpsys_input():
    assert read_rotation("    SurfaceWidth: 1080px\n    SurfaceOrientation: 3\n") == 3
    line = "  Viewport INTERNAL: displayId=0, uniqueId=local:4, port=0, orientation=1, logicalFrame=[0, 0, 2400, 1080]"
    assert read_rotation(line) == 1
    assert read_rotation(line.replace("=1,", "=Rotation2,")) == 2
    assert read_rotation("nothing") is None


def test_any_cut_of_a_listing_gives_a_panel_or_none_and_any_cut_of_events_at_most_the_taps():
    for size in range(0, len(LISTING), 7):
        assert set(read_panels(LISTING[:size])) <= {PANEL.path, "/dev/input/event3"}
    whole = TAP * 3
    for size in range(0, len(whole), 5):
        assert len([one for one in gestures(whole[:size]) if isinstance(one, Gesture)]) <= 3


def test_a_megabyte_of_junk_is_read_in_a_moment_and_the_tap_after_it_counts():
    chance = random.Random(0)
    junk = chance.randbytes(500_000) + b"[" * 300_000 + b"\n" + b"[ 1.0] " + b"EV_ABS " * 30_000 + b"\n"
    start, lines = time.process_time(), Lines()
    text = [line for at in range(0, len(junk), 4096) for line in lines.take(junk[at : at + 4096])]
    text += lines.take(TAP.encode())
    assert max(map(len, text)) <= 4500
    found = gestures("\n".join(text))
    assert [type(one) for one in found] == [Gesture]
    read_panels("\n".join(text))
    assert time.process_time() - start < 5


def test_random_events_never_raise():
    chance = random.Random(1)
    codes = ["ABS_MT_SLOT", "ABS_MT_TRACKING_ID", "ABS_MT_POSITION_X", "ABS_MT_POSITION_Y"]
    for _ in range(300):
        lines = []
        for number in range(chance.randint(1, 60)):
            kind = chance.choice(["SYN_REPORT", "SYN_REPORT", "SYN_DROPPED", *codes * 2])
            value = chance.choice([0, 1, 5, 1500, 0xFFFFFFFF, 0x7FFFFFFF])
            lines.append(f"[ {number}.0] {PANEL.path}: {'EV_SYN' if 'SYN' in kind else 'EV_ABS'} {kind} {value:08x}")
        for one in gestures("\n".join(lines)):
            if isinstance(one, Gesture):
                action_of(one, chance.randint(0, 3))
