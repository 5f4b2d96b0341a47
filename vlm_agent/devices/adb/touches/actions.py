"""A gesture on the panel → an action on the screen, which the phone may have turned."""

import re

from vlm_agent.devices.adb.touches.fingers import Gesture
from vlm_agent.episodes import Action, ActionKind

LONG_PRESS_SECONDS = 0.5
"""Android's default is 0.4 to 0.5 s."""

_TAP_DISTANCE = 0.04
"""In fractions of the panel: a finger that went farther and came back has drawn something."""

_ROTATION = (
    re.compile(r"SurfaceOrientation: ([0-3])"),
    re.compile(r"Viewport INTERNAL: displayId=0\b.{0,200}?\borientation=(?:Rotation)?([0-3])\b"),
)

HARDWARE_KEYS = {kind.facts.key[1]: Action(kind) for kind in ActionKind if kind.facts.key is not None}
HARDWARE_KEYS["KEY_HOME"] = Action.press("home")


def read_rotation(dump: str) -> int | None:
    """Quarter turns of the screen (`Surface.ROTATION_…`) in the output of `dumpsys input`; None if it has none."""
    return next((int(found[1]) for pattern in _ROTATION if (found := pattern.search(dump))), None)


def on_screen(place: tuple[float, float], rotation: int) -> tuple[float, float]:
    """(down, right) in fractions of the panel → (y, x) in fractions of the screen.

    As in Android's `TouchInputMapper`: after one quarter turn, the panel's right edge is the top of the screen.
    """
    down, right = place
    return ((down, right), (1 - right, down), (1 - down, 1 - right), (right, 1 - down))[rotation % 4]


def action_of(gesture: Gesture, rotation: int) -> Action | None:
    """A tap, long press or swipe; None for a finger that went away and came back."""
    touch, lift = on_screen(gesture.touch, rotation), on_screen(gesture.lift, rotation)
    action = Action.swipe(touch, lift)
    if action.is_swipe:
        return action
    if gesture.farthest > 2 * _TAP_DISTANCE:
        return None
    return Action.long_press(*touch) if gesture.seconds >= LONG_PRESS_SECONDS else Action.tap(*touch)
