"""The nouns of the field: Action, UiElement, CoatTexts, Step, Episode.

Everything else in the package speaks in these. Points and boxes are fractions of the screen, always in
(y, x) order, as Android in the Wild (AITW) stores them.
"""

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

SUBSETS = ("general", "google_apps", "install", "single", "web_shopping")

NO_POINT = (-1.0, -1.0)
"""What AITW stores as touch and lift of an action that is no gesture."""

TAP_DISTANCE = 0.04
"""A dual-point gesture whose ends are at most this far apart (Euclidean, screen fractions) is a tap
(AITW, `action_matching.py`: `_TAP_DISTANCE_THRESHOLD` decides matches, 0.04 decides taps)."""

BUTTONS = ("back", "home", "enter")


class ActionKind(IntEnum):
    """AITW's action types, with its numbers."""

    TYPE = 3
    DUAL_POINT = 4
    PRESS_BACK = 5
    PRESS_HOME = 6
    PRESS_ENTER = 7
    STATUS_TASK_COMPLETE = 10
    STATUS_TASK_IMPOSSIBLE = 11


@dataclass(frozen=True, slots=True)
class Action:
    """What was done on a screen.

    `touch_yx` and `lift_yx` are (y, x) in [0, 1] for DUAL_POINT and `NO_POINT` for every other kind; `text` is
    what was typed and empty for every other kind.

    Raises ValueError when the parts do not fit the kind, so that an Action that exists is a valid one.
    """

    kind: ActionKind
    touch_yx: tuple[float, float] = NO_POINT
    lift_yx: tuple[float, float] = NO_POINT
    text: str = ""

    def __post_init__(self):
        object.__setattr__(self, "kind", ActionKind(self.kind))
        if self.kind is ActionKind.DUAL_POINT:
            for name in ("touch_yx", "lift_yx"):
                point = tuple(float(value) for value in getattr(self, name))
                if len(point) != 2 or not all(0.0 <= value <= 1.0 for value in point):
                    raise ValueError(f"{name} is {point}; a gesture needs (y, x) within [0, 1]")
                object.__setattr__(self, name, point)
        elif self.touch_yx != NO_POINT or self.lift_yx != NO_POINT:
            raise ValueError(f"{self.kind.name} has no points, got touch {self.touch_yx} and lift {self.lift_yx}")
        if self.text and self.kind is not ActionKind.TYPE:
            raise ValueError(f"{self.kind.name} has no text, got {self.text!r}")
        try:
            self.text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"text {self.text!r} is not valid Unicode: {error.reason}") from None

    @classmethod
    def tap(cls, y: float, x: float) -> "Action":
        return cls(ActionKind.DUAL_POINT, (y, x), (y, x))

    @classmethod
    def swipe(cls, touch_yx: tuple[float, float], lift_yx: tuple[float, float]) -> "Action":
        """A gesture between two points; one of at most `TAP_DISTANCE` is, by AITW's rule, a tap."""
        return cls(ActionKind.DUAL_POINT, touch_yx, lift_yx)

    @classmethod
    def type_text(cls, text: str) -> "Action":
        return cls(ActionKind.TYPE, text=text)

    @classmethod
    def press(cls, button: str) -> "Action":
        """`button` is one of `BUTTONS`."""
        return cls(ActionKind[f"PRESS_{button.upper()}"])

    @classmethod
    def complete(cls) -> "Action":
        return cls(ActionKind.STATUS_TASK_COMPLETE)

    @classmethod
    def impossible(cls) -> "Action":
        return cls(ActionKind.STATUS_TASK_IMPOSSIBLE)

    @property
    def is_tap(self) -> bool:
        """In float32, as the official matcher computes it, so that both agree at the threshold."""
        if self.kind is not ActionKind.DUAL_POINT:
            return False
        return bool(aitw_distance(self.touch_yx, self.lift_yx) <= np.float32(TAP_DISTANCE))

    @property
    def is_swipe(self) -> bool:
        return self.kind is ActionKind.DUAL_POINT and not self.is_tap

    @property
    def is_status(self) -> bool:
        """Whether the agent declares the episode over."""
        return self.kind in (ActionKind.STATUS_TASK_COMPLETE, ActionKind.STATUS_TASK_IMPOSSIBLE)

    @property
    def direction(self) -> str | None:
        """Where the finger of a swipe moves: up, down, left or right; None for every other action.

        A tie between the axes goes to the vertical one, as in the official matcher.
        """
        if not self.is_swipe:
            return None
        dy, dx = (self.lift_yx[0] - self.touch_yx[0], self.lift_yx[1] - self.touch_yx[1])
        if abs(dy) >= abs(dx):
            return "down" if dy > 0 else "up"
        return "right" if dx > 0 else "left"

    @property
    def name(self) -> str:
        """The action mix's categories: tap, swipe, type, back, home, enter, complete, impossible."""
        if self.kind is ActionKind.DUAL_POINT:
            return "tap" if self.is_tap else "swipe"
        return self.kind.name.removeprefix("PRESS_").removeprefix("STATUS_TASK_").lower()


ACTION_NAMES = ("tap", "swipe", "type", "back", "home", "enter", "complete", "impossible")


@dataclass(frozen=True, slots=True)
class UiElement:
    """One annotation on a screen: `box` is (y, x, height, width) in screen fractions, `type` is `TEXT` or `ICON_…`."""

    box: tuple[float, float, float, float]
    text: str = ""
    type: str = "TEXT"

    @property
    def name(self) -> str:
        """What it is called: its text, else its icon type."""
        return self.text or self.type

    @property
    def centre_yx(self) -> tuple[float, float]:
        y, x, height, width = self.box
        return (y + height / 2, x + width / 2)

    def contains(self, point_yx: tuple[float, float]) -> bool:
        """Whether the point lies in the box, edges included."""
        y, x, height, width = self.box
        return y <= point_yx[0] <= y + height and x <= point_yx[1] <= x + width


@dataclass(frozen=True, slots=True)
class CoatTexts:
    """What Chain-of-Action-Thought (Android in the Zoo) says about one step in words; with each, its key in AitZ files.

    One that the source leaves out is the empty string; a step of a source without any has no CoatTexts at all.
    """

    screen: str = ""
    """What the screen shows, whatever the goal is: `coat_screen_desc`."""
    think: str = ""
    """Why this action, given goal, screen and history: `coat_action_think`."""
    action: str = ""
    """The action and the element it touches: `coat_action_desc`."""
    result: str = ""
    """What the action leads to, told by the screen behind it: `coat_action_result`."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A screen and what was done on it.

    `screenshot` is uint8 (height, width, 3), RGB, or None where pixels were not asked for. `coat` is None where the
    source has no such texts.
    """

    screenshot: np.ndarray | None
    action: Action
    elements: tuple[UiElement, ...] = ()
    activity: str = ""
    coat: CoatTexts | None = None

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        return self.screenshot.shape[:2]


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """One demonstration: a goal in words and the steps that reach it, in order."""

    id: str
    subset: str
    goal: str
    steps: tuple[Step, ...]
    device_type: str = ""
    android_api_level: int = 0

    def __len__(self) -> int:
        return len(self.steps)


def element_at(elements: tuple[UiElement, ...], point_yx: tuple[float, float]) -> UiElement | None:
    """The smallest element that holds the point, None where there is none.

    The smallest, because annotations nest: the icon in a button in a row is what was meant.
    """
    holding = [element for element in elements if element.contains(point_yx)]
    return min(holding, key=lambda element: element.box[2] * element.box[3], default=None)


def aitw_distance(a_yx: np.ndarray, b_yx: np.ndarray) -> np.ndarray:
    """Euclidean between points (..., 2), float32 (...), to the last bit what AITW's matcher computes.

    Its JAX norm squares x, rounds, and adds y squared in a fused multiply-add, which rounds once; float64 holds the
    square of a float32 exactly, so adding there and rounding is the same. Without that, thresholds fall differently.
    """
    delta = np.asarray(a_yx, np.float32) - np.asarray(b_yx, np.float32)
    dy, dx = delta[..., 0].astype(np.float64), delta[..., 1]
    return np.sqrt((dy * dy + dx * dx).astype(np.float32))


def distance(a_yx: tuple[float, float], b_yx: tuple[float, float]) -> float:
    """Euclidean, in screen fractions; the two axes count alike whatever the aspect ratio (AITW's convention)."""
    return math.hypot(a_yx[0] - b_yx[0], a_yx[1] - b_yx[1])
