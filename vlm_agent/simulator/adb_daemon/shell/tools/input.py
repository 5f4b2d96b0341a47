"""`input`: touches, text and keys."""

import math
from collections.abc import Callable

from vlm_agent.episodes import Action
from vlm_agent.simulator.adb_daemon.handset import Finger, Handset
from vlm_agent.simulator.adb_daemon.shell.session import Call, Result, ToolError
from vlm_agent.simulator.adb_daemon.shell.tools import keys

LONG_PRESS_SECONDS = 0.5
"""The shortest touch that counts as a long press (Android, `ViewConfiguration`)."""

_SOURCES = ("touchscreen", "keyboard", "mouse", "stylus", "touchpad")


def input_(handset: Handset, call: Call) -> Result:
    """`input [SOURCE] [-d 0] tap|swipe|draganddrop|motionevent|text|keyevent|keycombination …`."""
    words = call.words
    if words[:1] and words[0] in _SOURCES:
        words = words[1:]
    if words[:2] == ["-d", "0"]:
        words = words[2:]
    run = _COMMANDS.get(words[0]) if words else None
    if run is None:
        raise _invalid(words[:1])
    run(handset, words[1:])
    return Result()


def _invalid(words: list[str]) -> ToolError:
    return ToolError(f"Error: Invalid arguments for command: {' '.join(words)}")


def _tap(handset: Handset, words: list[str]) -> None:
    if len(words) != 2:
        raise _invalid(["tap"])
    point = _point(handset, words)
    _gesture(handset, point, point, 0.0)


def _swipe(handset: Handset, words: list[str]) -> None:
    """`swipe X Y X Y [MILLISECONDS]`. A swipe that ends beyond the screen ends at its edge."""
    if len(words) not in (4, 5):
        raise _invalid(["swipe"])
    text = words[4] if len(words) == 5 else "0"
    if not (text.isascii() and text.removeprefix("-").isdecimal() and len(text) < 10):
        raise ToolError(f'Error: For input string: "{text}"')
    _gesture(handset, _point(handset, words[:2]), _point(handset, words[2:4], is_lift=True), int(text) / 1000)


def _drag(handset: Handset, words: list[str]) -> None:
    """`draganddrop X Y X Y [MILLISECONDS]`. In apps it scrolls like a swipe; the launcher would move an icon."""
    if handset.phone.at_home and not handset.phone.shade:
        raise ToolError("Error: the launcher of the simulated phone moves no icons")
    _swipe(handset, words)


def _motion(handset: Handset, words: list[str]) -> None:
    """`motionevent DOWN|MOVE|UP|CANCEL X Y`: a gesture in parts. It has its effect when the finger goes up."""
    if len(words) != 3 or words[0] not in ("DOWN", "MOVE", "UP", "CANCEL"):
        raise _invalid(["motionevent"])
    point = _point(handset, words[1:], is_lift=words[0] != "DOWN")
    if words[0] == "DOWN":
        handset.finger = Finger(point, handset.now())
        return
    finger = handset.finger
    if finger is None:
        raise ToolError(f"Error: motionevent {words[0]} without a finger on the screen; begin with DOWN")
    if words[0] != "MOVE":
        handset.finger = None
    if words[0] == "UP":
        _gesture(handset, finger.touch_yx, point, handset.now() - finger.seconds)


def _gesture(handset: Handset, touch: tuple[float, float], lift: tuple[float, float], seconds: float) -> None:
    """A tap or swipe; a long press if the finger does not move for long enough."""
    action = Action.swipe(touch, lift)
    is_long = action.is_tap and seconds >= LONG_PRESS_SECONDS
    handset.perform(Action.long_press(*touch) if is_long else action)


def _point(handset: Handset, place_xy: list[str], is_lift: bool = False) -> tuple[float, float]:
    """The centre of the pixel (x, y), as (y, x) in screen fractions.

    A lift beyond the screen is at its edge; a touch there raises ToolError.
    """
    x, y = place_xy
    try:
        place = (float(y), float(x))
    except ValueError as error:
        raise ToolError(f"Error: {error}") from None
    if not all(map(math.isfinite, place)):
        raise ToolError(f"Error: Invalid coordinates: {x} {y}")
    size = handset.phone.size
    if is_lift:
        place = (min(max(0.0, place[0]), size[0] - 1.0), min(max(0.0, place[1]), size[1] - 1.0))
    if not all(0 <= value < pixels for value, pixels in zip(place, size, strict=True)):
        raise ToolError(f"Error: {x} {y} is not on the screen of {size[1]}x{size[0]} pixels")
    return (int(place[0]) + 0.5) / size[0], (int(place[1]) + 0.5) / size[1]


def _text(handset: Handset, words: list[str]) -> None:
    if len(words) != 1:
        raise _invalid(["text"])
    if not all(" " <= letter <= "~" for letter in words[0]):
        raise ToolError("java.lang.NullPointerException: Attempt to get length of null array", 255)
    # As on Android, %s becomes a space and cannot be escaped.
    handset.perform(Action.type_text(words[0].replace("%s", " ")))


def _keys(handset: Handset, words: list[str]) -> None:
    """`keyevent [--longpress] KEY …`."""
    is_long = words[:1] == ["--longpress"]
    names = words[1:] if is_long else words
    if not names:
        raise _invalid(["keyevent"])
    for name in names:
        keys.press(handset, name, is_long)


_COMMANDS: dict[str, Callable[[Handset, list[str]], None]] = {
    "draganddrop": _drag,
    "keycombination": lambda handset, words: keys.press_together(handset, words[2:] if words[:1] == ["-t"] else words),
    "keyevent": _keys,
    "motionevent": _motion,
    "swipe": _swipe,
    "tap": _tap,
    "text": _text,
}
