"""The words that Android's shell receives for each action."""

import pytest

from vlm_agent.devices.adb import phone
from vlm_agent.devices.adb.link import command_line


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (phone.tap(1200, 540), "input tap 540 1200"),
        (phone.swipe((1200, 540), (300, 545)), "input swipe 540 1200 545 300 300"),
        (phone.long_press(1200, 540), "input swipe 540 1200 540 1200 1000"),
        *((phone.press(code), f"input keyevent {code}") for code in (4, 3, 66, 187)),
    ],
    ids=["tap", "swipe", "long press", "back", "home", "enter", "recents"],
)
def test_actions_have_the_coordinates_durations_and_key_codes_of_android(words, line):
    """x before y; a swipe of 300 ms is no fling, and a touch of 1 s is over Android's long-press timeout."""
    assert command_line(words) == line
