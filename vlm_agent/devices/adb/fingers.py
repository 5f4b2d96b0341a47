"""Events of a touch screen → gestures → actions, by the Linux multi-touch protocol (`multi-touch-protocol.rst`).

A panel has slots: a tracking id from 0 begins a contact, -1 ends it, and what does not change is not reported, so a
slot keeps its place. Another id in a slot whose contact did not end is a new contact: the line between was lost.

A gesture begins with the first finger and ends when no finger is left. One with several fingers is left out as a whole:
no action describes it.
"""

import re
from dataclasses import dataclass, field

from vlm_agent.devices.adb.getevent import Panel, TouchEvent
from vlm_agent.episodes import Action, ActionKind

SEVERAL_FINGERS = "gestures with several fingers"
NO_PLACE = "touches without a place on the panel"
LOST = "touches that the phone reported in part"
CUT = "touches without an end"

LONG_PRESS_SECONDS = 0.5
"""Android's default is 0.4 to 0.5 s."""

_TAP_DISTANCE = 0.04
"""In fractions of the panel: a finger that went farther and came back has drawn something."""

_MAX_SLOTS = 64

_ROTATION = (
    re.compile(r"SurfaceOrientation: ([0-3])"),
    re.compile(r"Viewport INTERNAL: displayId=0\b.{0,200}?\borientation=(?:Rotation)?([0-3])\b"),
)

HARDWARE_KEYS = {kind.facts.key[1]: Action(kind) for kind in ActionKind if kind.facts.key is not None}
HARDWARE_KEYS["KEY_HOME"] = Action.press("home")


@dataclass(frozen=True)
class Gesture:
    """A finger on the panel, places as (down, right) in its fractions. `seconds`: from touch to lift.

    `farthest`: the largest distance from the first place on either axis.
    """

    seconds: float
    touch: tuple[float, float]
    lift: tuple[float, float]
    farthest: float


@dataclass(frozen=True)
class LeftOut:
    """A gesture that has no action. `reason`: one of the constants above."""

    reason: str


@dataclass
class _Contact:
    """A slot. `x` and `y` persist from one contact to the next; None until the panel has reported them. `id`: the
    tracking id, -1 while no finger is down."""

    x: int | None = None
    y: int | None = None
    id: int = -1


@dataclass
class _Trail:
    began: float
    slot: int
    fingers: int = 1
    places: list[tuple[float, float] | None] = field(default_factory=list)
    farthest: float = 0.0

    def add(self, place: tuple[float, float] | None) -> None:
        """Keeps the first place and the last."""
        self.places = [*self.places[:1], place]
        if self.places[0] is not None and place is not None:
            far = (abs(one - other) for one, other in zip(self.places[0], place, strict=True))
            self.farthest = max(self.farthest, *far)


class Fingers:
    """The fingers on one panel."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._slots: dict[int, _Contact] = {}
        self._slot = 0
        self._trail: _Trail | None = None

    @property
    def is_down(self) -> bool:
        """Whether a gesture is under way."""
        return self._trail is not None or bool(self._down())

    def take(self, event: TouchEvent) -> Gesture | LeftOut | None:
        """The gesture that ends with this event."""
        contact = self._slots.setdefault(self._slot, _Contact())
        match event.code:
            case "ABS_MT_TRACKING_ID":
                return self._track(contact, event.value)
            case "ABS_MT_SLOT":
                self._slot = min(max(0, event.value), _MAX_SLOTS)
            case "ABS_MT_POSITION_X":
                contact.x = event.value
            case "ABS_MT_POSITION_Y":
                contact.y = event.value
            case "SYN_DROPPED":  # the phone's queue was full: what follows begins with the next contact
                return self._drop(LOST)
            case "SYN_REPORT":
                return self._commit(event.seconds)
        return None

    def end(self) -> LeftOut | None:
        """The gesture under way when the stream ends."""
        return self._drop(CUT)

    def _drop(self, reason: str) -> LeftOut | None:
        was_down, self._trail, self._slots = self.is_down, None, {}
        return LeftOut(reason) if was_down else None

    def _down(self) -> dict[int, _Contact]:
        return {slot: contact for slot, contact in self._slots.items() if contact.id >= 0}

    def _track(self, contact: _Contact, tracking_id: int) -> LeftOut | None:
        is_lost = contact.id >= 0 and tracking_id >= 0 and contact.id != tracking_id
        contact.id = tracking_id
        if not is_lost:
            return None
        self._trail = None  # the next one begins with the new contact
        return LeftOut(LOST)

    def _commit(self, seconds: float) -> Gesture | LeftOut | None:
        down = self._down()
        if self._trail is None and down:
            self._trail = _Trail(seconds, min(down))
        trail = self._trail
        if trail is None:
            return None
        trail.fingers = max(trail.fingers, len(down))
        if (contact := down.get(trail.slot)) is not None:
            trail.add(self._panel.fractions(contact.x, contact.y))
        if down:
            return None
        self._trail = None
        return _gesture(trail, seconds)


def _gesture(trail: _Trail, seconds: float) -> Gesture | LeftOut:
    if trail.fingers > 1:
        return LeftOut(SEVERAL_FINGERS)
    first, last = trail.places[0], trail.places[-1]
    if first is None or last is None:
        return LeftOut(NO_PLACE)
    return Gesture(max(0.0, seconds - trail.began), first, last, trail.farthest)


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
