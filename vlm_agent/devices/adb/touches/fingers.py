"""Events of a touch screen → gestures, by the Linux multi-touch protocol (`multi-touch-protocol.rst`).

Protocol B has slots: a tracking id from 0 begins a contact, -1 ends it, and what does not change is not reported, so a
slot keeps its place. Another id in a slot whose contact did not end is a new contact: the line between was lost.
Protocol A lists all contacts before each SYN_REPORT, each with SYN_MT_REPORT; a contact may have a tracking id, too. A
panel without ABS_MT_… has one contact.

A gesture begins with the first finger and ends when no finger is left. One with several fingers is left out as a whole:
no action describes it.
"""

from dataclasses import dataclass, field

from vlm_agent.devices.adb.touches.events import TouchEvent
from vlm_agent.devices.adb.touches.panels import Panel

SEVERAL_FINGERS = "gestures with several fingers"
NO_PLACE = "touches without a place on the panel"
LOST = "touches that the phone reported in part"
CUT = "touches without an end"

_MAX_SLOTS = 64


@dataclass(frozen=True)
class Gesture:
    """A finger on the panel, places as (down, right) in its fractions. `began`, `seconds`: by the phone's clock.

    `farthest`: the largest distance from the first place on either axis.
    """

    began: float
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
    tracking id, if there was one."""

    x: int | None = None
    y: int | None = None
    is_down: bool = False
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
        self._listed: list[_Contact] = []  # protocol A
        self._has_ids = self._is_listing = False
        self._has_touch_key = False
        self._trail: _Trail | None = None

    @property
    def is_down(self) -> bool:
        """Whether a gesture is under way."""
        return self._trail is not None or any(contact.is_down for contact in self._slots.values())

    def take(self, event: TouchEvent) -> Gesture | LeftOut | None:
        """The gesture that ends with this event."""
        if event.type == "EV_ABS" and event.code == "ABS_MT_TRACKING_ID":
            return self._track(event.value)
        if event.type == "EV_ABS":
            self._move(event.code, event.value)
        elif event.code == "BTN_TOUCH" and not self._panel.has_contacts:
            self._contact().is_down = event.value != 0
        elif event.code == "SYN_DROPPED":
            return self._lose()
        elif event.code == "SYN_MT_REPORT":
            self._is_listing = True
            contact = self._contact()
            if contact.x is not None or contact.y is not None:
                self._listed.append(_Contact(contact.x, contact.y, True))
            self._slots = {0: _Contact()}
        elif event.code == "SYN_REPORT":
            return self._commit(event.seconds)
        return None

    def end(self) -> LeftOut | None:
        """The gesture under way when the stream ends."""
        was_down, self._trail, self._slots = self.is_down, None, {}
        return LeftOut(CUT) if was_down else None

    def _contact(self) -> _Contact:
        return self._slots.setdefault(self._slot, _Contact())

    def _track(self, tracking_id: int) -> LeftOut | None:
        contact, self._has_ids = self._contact(), True
        is_lost = contact.is_down and tracking_id >= 0 and contact.id not in (-1, tracking_id)
        contact.is_down, contact.id = tracking_id >= 0, tracking_id
        if not is_lost:
            return None
        self._trail = None  # the next one begins with the new contact
        return LeftOut(LOST)

    def _move(self, code: str, value: int) -> None:
        prefix = "ABS_MT_POSITION_" if self._panel.has_contacts else "ABS_"
        if code == "ABS_MT_SLOT":
            self._slot = min(max(0, value), _MAX_SLOTS)
        elif code == f"{prefix}X":
            self._contact().x = value
        elif code == f"{prefix}Y":
            self._contact().y = value

    def _commit(self, seconds: float) -> Gesture | LeftOut | None:
        is_listed = self._panel.has_contacts and (self._is_listing or not self._has_ids)
        if is_listed:
            self._slots, self._listed = dict(enumerate(self._listed)) or {0: _Contact()}, []
        down = {slot: contact for slot, contact in self._slots.items() if contact.is_down}
        if self._trail is None and down:
            self._trail = _Trail(seconds, min(down))
        trail = self._trail
        if trail is None:
            return None
        trail.fingers = max(trail.fingers, len(down))
        if trail.slot in down:
            trail.add(self._place(down[trail.slot]))
        if is_listed:
            self._slots = {0: _Contact()}
        if down:
            return None
        self._trail = None
        return _gesture(trail, seconds)

    def _place(self, contact: _Contact) -> tuple[float, float] | None:
        if contact.x is None or contact.y is None:
            return None
        return self._panel.fractions(contact.x, contact.y)

    def _lose(self) -> LeftOut | None:
        """The phone's queue was full: what follows begins with the next contact."""
        was_down, self._trail = self.is_down, None
        self._slots, self._listed = {}, []
        return LeftOut(LOST) if was_down else None


def _gesture(trail: _Trail, seconds: float) -> Gesture | LeftOut:
    if trail.fingers > 1:
        return LeftOut(SEVERAL_FINGERS)
    first, last = trail.places[0], trail.places[-1]
    if first is None or last is None:
        return LeftOut(NO_PLACE)
    return Gesture(trail.began, max(0.0, seconds - trail.began), first, last, trail.farthest)
