"""The words that Android's shell receives for each action."""

import pytest

from vlm_agent.devices.adb.link import command_line
from vlm_agent.devices.adb.phone import AdbPhone
from vlm_agent.episodes import Action


class Unconnected(AdbPhone):
    logical_size = (2400, 1080)

    def __init__(self):
        """Without a phone."""


@pytest.mark.parametrize(
    ("action", "line"),
    [
        (Action.tap(0.5, 0.25), "input tap 270 1200"),
        (Action.swipe((0.5, 0.25), (0.125, 0.5)), "input swipe 270 1200 540 300 300"),
        (Action.long_press(0.5, 0.25), "input swipe 270 1200 270 1200 1000"),
        (Action.press("back"), "input keyevent 4"),
        (Action.press("home"), "input keyevent 3"),
        (Action.press("enter"), "input keyevent 66"),
        (Action.recents(), "input keyevent 187"),
    ],
    ids=["tap", "swipe", "long press", "back", "home", "enter", "recents"],
)
def test_actions_have_the_coordinates_durations_and_key_codes_of_android(action, line):
    """x before y; a swipe of 300 ms is no fling, and a touch of 1 s is over Android's long-press timeout."""
    assert command_line(Unconnected()._command(action)) == line
