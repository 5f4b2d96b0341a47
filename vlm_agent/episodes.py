"""The data types of the field: Action, UiElement, Notes, Screen, Step, Episode.

The whole package exchanges these. Points and boxes are fractions of the screen, always in (y, x) order, as Android in
the Wild (AITW) stores them.
"""

import hashlib
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache

import numpy as np

from vlm_agent.geometry import DIRECTIONS, are_taps, box_at, contains, directions

NO_POINT = (-1.0, -1.0)
"""Touch and lift point of an action without points, as AITW stores them."""


@dataclass(frozen=True)
class KindFacts:
    """What is true of one type of actions.

    `words`: how a sentence names it, before the touched element or the text. `points`: the number of points of the
    finger, 1 for a touch, 2 with a lift point. `has_text`, `ends_episode`: whether it has a text, and whether the agent
    declares the episode over. `key`: the key of the phone, by Android's code (`KeyEvent`) and by Linux's name.
    """

    words: str
    points: int = 0
    has_text: bool = False
    ends_episode: bool = False
    key: tuple[int, str] | None = None


class ActionKind(IntEnum):
    """The types of actions, and what the package knows of each. A new type is a row here.

    Those below 100 are AITW's, with AITW's numbers; the others came with later data sets, and AITW never uses their
    numbers. Phones need the effect of a new type, and languages its spelling.
    """

    facts: KindFacts

    TYPE = 3, KindFacts("type", has_text=True)
    DUAL_POINT = 4, KindFacts("click on", points=2)
    PRESS_BACK = 5, KindFacts("press the back button", key=(4, "KEY_BACK"))
    PRESS_HOME = 6, KindFacts("press the home button", key=(3, "KEY_HOMEPAGE"))
    PRESS_ENTER = 7, KindFacts("press the enter key", key=(66, "KEY_ENTER"))
    STATUS_TASK_COMPLETE = 10, KindFacts("stop, the task is complete", ends_episode=True)
    STATUS_TASK_IMPOSSIBLE = 11, KindFacts("stop, the task is impossible", ends_episode=True)
    LONG_PRESS = 100, KindFacts("long press", points=1)
    OPEN_APP = 101, KindFacts("open the app", has_text=True)
    WAIT = 102, KindFacts("wait")
    RECENTS = 103, KindFacts("press the recents button", key=(187, "KEY_APPSELECT"))
    ANSWER = 104, KindFacts("answer", has_text=True)

    def __new__(cls, number: int, *facts: KindFacts) -> "ActionKind":  # a call with the number alone looks it up
        kind = int.__new__(cls, number)
        kind._value_, (kind.facts,) = number, facts
        return kind

    @property
    def is_in_aitw(self) -> bool:
        """Whether AITW has this type, so that its files can hold such an action."""
        return self < 100

    @property
    def short_name(self) -> str:
        """The type's name in lower case, without the prefixes PRESS and STATUS_TASK: back, complete, long_press, …"""
        return self.name.removeprefix("PRESS_").removeprefix("STATUS_TASK_").lower()


BUTTONS = tuple(kind.short_name for kind in ActionKind if kind.facts.key and kind.is_in_aitw)
"""AITW's keys: back, home, enter."""

KINDS_WITH_TOUCH = tuple(kind for kind in ActionKind if kind.facts.points)
"""The types with a touch point. Only DUAL_POINT also has a lift point."""

KINDS_WITH_TEXT = tuple(kind for kind in ActionKind if kind.facts.has_text)
"""The types with a text: what is typed, the name of the app, the answer to the user."""

_STATUS_BAR = 20
"""The top 1/20 of a screen, the status bar with the clock, is ignored in comparisons of screens."""

_SYSTEM_BAR = 14
"""The largest part of a screen that the status bar or the bar with the keys has, as 1/14."""

_BLACK_LEVEL = 2

_CHANGED_SHARE = 1 / 5000
"""A screen counts as unchanged if at most this share of its pixels differs: a cursor blinks, a check box is larger.

VisionTasker's published code compares structural similarity (above 0.90, and above 0.97 around the element), by which
a switch in a long list may count as unchanged.
"""

_CHANGED_LEVELS = 24
"""Colour levels by which a pixel must differ to count as changed: a screenshot may be compressed."""


def is_same_text(first: str, second: str) -> bool:
    """Whether two texts are equal up to Unicode normalisation (NFC): an accented letter is one character or two."""
    return first == second or unicodedata.normalize("NFC", first) == unicodedata.normalize("NFC", second)


@dataclass(frozen=True, slots=True)
class Action:
    """One action on a screen.

    | kind                              | touch_yx | lift_yx | text                            |
    |-----------------------------------|----------|---------|---------------------------------|
    | DUAL_POINT (tap or swipe)         | yes      | yes     |                                 |
    | LONG_PRESS                        | yes      |         |                                 |
    | TYPE, OPEN_APP, ANSWER            |          |         | typed text, app's name, answer  |
    | PRESS_…, STATUS_…, WAIT, RECENTS  |          |         |                                 |

    Points are (y, x) in [0, 1], as Python floats. A field that the kind does not use is `NO_POINT` or empty.

    Raises ValueError for fields that do not fit the kind, so every Action that exists is valid.
    """

    kind: ActionKind
    touch_yx: tuple[float, float] = NO_POINT
    lift_yx: tuple[float, float] = NO_POINT
    text: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", ActionKind(self.kind))
        self._check_point("touch_yx", self.kind.facts.points > 0)
        self._check_point("lift_yx", self.kind.facts.points > 1)
        if self.text and not self.kind.facts.has_text:
            raise ValueError(f"{self.kind.name} has no text, got {self.text!r}")
        try:
            self.text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"text {self.text!r} is not valid Unicode: {error.reason}") from None

    def _check_point(self, name: str, is_used: bool) -> None:
        if not is_used:
            if getattr(self, name) != NO_POINT:
                raise ValueError(f"{self.kind.name} has no points like {name}, got {getattr(self, name)}")
            return
        point = tuple(float(value) for value in getattr(self, name))
        if len(point) != 2 or not all(0.0 <= value <= 1.0 for value in point):
            raise ValueError(f"{name} is {point}; {self.kind.name} needs (y, x) within [0, 1]")
        object.__setattr__(self, name, point)

    @classmethod
    def tap(cls, y: float, x: float) -> "Action":
        return cls(ActionKind.DUAL_POINT, (y, x), (y, x))

    @classmethod
    def swipe(cls, touch_yx: tuple[float, float], lift_yx: tuple[float, float]) -> "Action":
        """A gesture between two points. By AITW's rule, it is a tap if they are at most `TAP_DISTANCE` apart."""
        return cls(ActionKind.DUAL_POINT, touch_yx, lift_yx)

    @classmethod
    def long_press(cls, y: float, x: float) -> "Action":
        return cls(ActionKind.LONG_PRESS, (y, x))

    @classmethod
    def type_text(cls, text: str) -> "Action":
        return cls(ActionKind.TYPE, text=text)

    @classmethod
    def open_app(cls, name: str) -> "Action":
        """Open the app with this name, as the launcher shows it."""
        return cls(ActionKind.OPEN_APP, text=name)

    @classmethod
    def answer(cls, text: str) -> "Action":
        """Answer the user's question; nothing on the phone changes."""
        return cls(ActionKind.ANSWER, text=text)

    @classmethod
    def press(cls, button: str) -> "Action":
        """`button` is one of `BUTTONS`."""
        return cls(ActionKind[f"PRESS_{button.upper()}"])

    @classmethod
    def recents(cls) -> "Action":
        """Show the list of recently used apps."""
        return cls(ActionKind.RECENTS)

    @classmethod
    def wait(cls) -> "Action":
        """Do nothing, until the screen has loaded."""
        return cls(ActionKind.WAIT)

    @classmethod
    def complete(cls) -> "Action":
        return cls(ActionKind.STATUS_TASK_COMPLETE)

    @classmethod
    def impossible(cls) -> "Action":
        return cls(ActionKind.STATUS_TASK_IMPOSSIBLE)

    @property
    def is_tap(self) -> bool:
        return self.kind is ActionKind.DUAL_POINT and _direction(self.touch_yx, self.lift_yx) is None

    @property
    def is_touch(self) -> bool:
        """Whether the finger touches one element: a tap or a long press."""
        return self.is_tap or self.kind.facts.points == 1

    @property
    def is_swipe(self) -> bool:
        return self.kind is ActionKind.DUAL_POINT and not self.is_tap

    @property
    def is_status(self) -> bool:
        """Whether the agent declares the episode over."""
        return self.kind.facts.ends_episode

    @property
    def direction(self) -> str | None:
        """Direction in which the finger of a swipe moves: up, down, left or right. None for every other action."""
        return _direction(self.touch_yx, self.lift_yx) if self.kind is ActionKind.DUAL_POINT else None

    @property
    def name(self) -> str:
        """One of `ACTION_NAMES`."""
        if self.kind is ActionKind.DUAL_POINT:
            return "tap" if self.is_tap else "swipe"
        return self.kind.short_name


@lru_cache(4096)
def _direction(touch_yx: tuple[float, float], lift_yx: tuple[float, float]) -> str | None:
    """The direction of a gesture; None for a tap. Cached, because sentences and scores ask several times a step."""
    return None if are_taps(touch_yx, lift_yx) else DIRECTIONS[int(directions(touch_yx, lift_yx))]


ACTION_NAMES = ("tap", "swipe", *(kind.short_name for kind in ActionKind if kind is not ActionKind.DUAL_POINT))
"""The categories of the action mix. The first eight are those of AITW's types."""

_AITW_ACTION_NAMES = ACTION_NAMES[: 1 + sum(kind.is_in_aitw for kind in ActionKind)]


def shown_action_names(present: Collection[str]) -> tuple[str, ...]:
    """The rows or columns of a table of actions: AITW's eight names, and those of the others that are `present`."""
    return tuple(name for name in ACTION_NAMES if name in _AITW_ACTION_NAMES or name in present)


NOT_SHOWN = WINDOW, HIDDEN, TARGET = "WINDOW", "HIDDEN", "TARGET"
"""Types of elements that scorers alone read: a window, an invisible node, and the box that holds the gold
point as the data set publishes it."""


@dataclass(frozen=True, slots=True)
class UiElement:
    """An annotated element: `box` is (y, x, height, width) in screen fractions, `type` is `TEXT` or `ICON_…`.

    Elements of `Step.tree` may have the types `WINDOW`, `HIDDEN` and `TARGET`, and boxes without an extent.
    """

    box: tuple[float, float, float, float]
    text: str = ""
    type: str = "TEXT"

    @property
    def name(self) -> str:
        """Its text, or its type if it has no text."""
        return self.text or self.type

    @property
    def is_shown(self) -> bool:
        """Whether it is visible and has an extent."""
        return self.type not in NOT_SHOWN and self.box[2] > 0 and self.box[3] > 0

    @property
    def centre_yx(self) -> tuple[float, float]:
        y, x, height, width = self.box
        return (y + height / 2, x + width / 2)

    def contains(self, point_yx: tuple[float, float]) -> bool:
        """Whether the point lies in the box, edges included."""
        return contains(self.box, point_yx)


def shown_elements(elements: tuple[UiElement, ...]) -> tuple[UiElement, ...]:
    """The elements that agents and models read: those with `is_shown` of a `Step.tree`, otherwise `elements` itself."""
    is_tree = any(element.type in NOT_SHOWN for element in elements)
    return tuple(element for element in elements if element.is_shown) if is_tree else elements


WIDGET_KINDS = (
    "status_bar",
    "navigation_bar",
    "button",
    "edit_text",
    "image",
    "page_indicator",
    "seek_bar",
    "rating_bar",
    "check_box",
    "radio_group",
    "spinner",
    "switch",
)
"""The 12 kinds of widgets that VisionTasker detects (section 4.1). A `radio_group` is one of the buttons of a group."""


@dataclass(frozen=True, slots=True)
class Widget:
    """A widget as drawn: `box` is (y, x, height, width) in screen fractions, `kind` is one of `WIDGET_KINDS`.

    `on`: whether it is switched on, checked or chosen; None for a kind without such a state. `score`: confidence of a
    detector in [0, 1]; 1 for a drawn widget.
    """

    kind: str
    box: tuple[float, float, float, float]
    on: bool | None = None
    score: float = 1.0


class Notes(Mapping[str, str]):
    """Texts on a step by their names. Immutable, hashable, and equal to every mapping with the same texts.

    | name     | text                                                                                          |
    |----------|-----------------------------------------------------------------------------------------------|
    | `screen` | description of the screen, independent of the goal                                            |
    | `think`  | reasoning that leads from goal, screen and history to the action                              |
    | `action` | description of the action and the element that it touches                                     |
    | `result` | result of the action, as the next screen shows it; on a `Screen`, that of the previous action |
    | `plan`   | what remains to be done from this screen, this step's line first; a line for each step        |
    | `step`   | the immediate step in words                                                                   |

    A source may have texts of other names. A name that is absent was not recorded; a text that was recorded may be
    empty. `plan` and `step` know this screen and earlier ones, but no later screen.
    """

    __slots__ = ("_texts",)

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        self._texts = {} if texts is None else dict(texts)

    def __getitem__(self, name: str) -> str:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __hash__(self) -> int:
        return hash(frozenset(self._texts.items()))

    def __repr__(self) -> str:
        return repr(self._texts)


NO_NOTES = Notes()


@dataclass(frozen=True, slots=True, eq=False)
class Screen:
    """What an agent may see of a phone.

    `pixels`: uint8 (height, width, 3), RGB; None if they were not read. `elements`: None if the source does not provide
    them. `activity`: `package/activity`, empty if unknown. `notes`: what was recorded in words before the action on
    this screen (`recorded_screen`); empty on a phone. `episode`: the id of the recorded episode, which an agent must
    not have as an example, or that of the trace of a phone; empty for a screen alone. `step`: the number of the step in
    that episode, from 0, also where a control hides the earlier steps. `size`: (height, width) of the phone's screen in
    pixels, by default that of `pixels`; None if unknown. Action languages that count pixels need it. `instruction`: as
    `Step.instruction`, for agents that are asked for one step; None on a phone.
    """

    pixels: np.ndarray | None
    elements: tuple[UiElement, ...] | None = None
    activity: str = ""
    notes: Mapping[str, str] = NO_NOTES
    episode: str = ""
    step: int = 0
    size: tuple[int, int] | None = None
    instruction: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", Notes(self.notes))
        if self.size is None and self.pixels is not None:
            object.__setattr__(self, "size", self.pixels.shape[:2])


def below_status_bar(pixels: np.ndarray) -> np.ndarray:
    """A view of uint8 (height, width, 3) without the status bar, whose clock changes by itself."""
    return pixels[len(pixels) // _STATUS_BAR :]


def digest(pixels: np.ndarray) -> bytes:
    """A hash of uint8 (height, width, 3) without the status bar."""
    return hashlib.sha256(np.ascontiguousarray(below_status_bar(pixels)).data).digest()


def is_black(pixels: np.ndarray) -> bool:
    """Whether uint8 (height, width, 3) shows nothing: black between the bars of the system at its two ends, which stay
    visible around a window that forbids pictures of itself."""
    bar = len(pixels) // _SYSTEM_BAR
    return int(pixels[bar : len(pixels) - bar].max(initial=0)) <= _BLACK_LEVEL


def is_same_screen(first: Screen, second: Screen) -> bool:
    """Whether two screens show the same, but for status bar, blinking cursor and noise of compression.

    Without pixels, elements are compared.
    """
    if first.pixels is None or second.pixels is None:
        return first.pixels is second.pixels and first.elements == second.elements
    if first.pixels.shape != second.pixels.shape:
        return False
    before, after = below_status_bar(first.pixels), below_status_bar(second.pixels)
    if np.array_equal(before, after):
        return True
    differs = np.abs(before.astype(np.int16) - after).max(axis=2, initial=0) > _CHANGED_LEVELS
    return bool(differs.sum() <= _CHANGED_SHARE * differs.size)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A screen and the action on it.

    `screenshot` is uint8 (height, width, 3), RGB, or None if the pixels were not read. `notes`: the texts that the
    source has (`Notes`). `instruction` is the low-level instruction of this one step, such as "tap the search field",
    which AndroidControl has for each step; None if the source has none.
    `stored_size` is the (height, width) of a screen in shards whose pixels were not read. `tree`: every window and
    node of the screen in the order of the source, and `TARGET`s, for scorers; None if the source has only `elements`,
    which are otherwise its `shown_elements`.
    """

    screenshot: np.ndarray | None
    action: Action
    elements: tuple[UiElement, ...] = ()
    activity: str = ""
    notes: Mapping[str, str] = NO_NOTES
    instruction: str | None = None
    stored_size: tuple[int, int] | None = None
    tree: tuple[UiElement, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", Notes(self.notes))

    @property
    def all_elements(self) -> tuple[UiElement, ...]:
        """What shards and predictions store."""
        return self.elements if self.tree is None else self.tree

    @property
    def screen(self) -> Screen:
        return Screen(self.screenshot, self.elements, self.activity, size=self.known_size, instruction=self.instruction)

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) in pixels. Raises ValueError for a step without pixels that is not from shards."""
        if self.known_size is None:
            raise ValueError("a step without pixels has no size")
        return self.known_size

    @property
    def known_size(self) -> tuple[int, int] | None:
        """`size`, None for a step without pixels that is not from shards."""
        return self.stored_size if self.screenshot is None else (len(self.screenshot), self.screenshot.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """One demonstration: a goal in words and the steps that reach it, in order.

    `subset` is any name; a data set chooses its own. `first_step` is the number of `steps[0]` in the recorded episode:
    not 0 in a part of it, such as one that a control leaves visible.
    """

    id: str
    subset: str
    goal: str
    steps: tuple[Step, ...]
    device_type: str = ""
    android_api_level: int = 0
    first_step: int = 0

    def __len__(self) -> int:
        return len(self.steps)


_BEFORE_ACTION = ("screen", "plan", "step")


def recorded_screen(episode: Episode, number: int) -> Screen:
    """What an agent may see at `episode.steps[number]`: the screen, and the notes that were known before the action.

    `result` is that of the previous action. The result of the action of this step describes the next screen.
    """
    step = episode.steps[number]
    notes = {name: step.notes[name] for name in _BEFORE_ACTION if name in step.notes}
    if number and "result" in episode.steps[number - 1].notes:
        notes["result"] = episode.steps[number - 1].notes["result"]
    return replace(step.screen, notes=notes, episode=episode.id, step=episode.first_step + number)


def without_pixels(episode: Episode) -> Episode:
    """The same episode with every screenshot None; the sizes of screens stay."""
    steps = (replace(step, screenshot=None, stored_size=step.known_size) for step in episode.steps)
    return replace(episode, steps=tuple(steps))


def element_at(elements: Sequence[UiElement], point_yx: tuple[float, float]) -> UiElement | None:
    """The smallest element that contains the point, None where no element does (`geometry.box_at`)."""
    index = box_at((element.box for element in elements), point_yx)
    return None if index is None else elements[index]
