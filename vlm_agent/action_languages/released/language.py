"""The codec that all languages of released agents share, its settings, and the rules by which they write points.

A `Form` describes one language: how a call is found in a text, what each call means, and how each action is written.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import Field, model_validator

from vlm_agent.action_languages.language import SWIPES, ActionLanguage, LanguageSettings, LanguageVocabulary
from vlm_agent.episodes import Action, Screen
from vlm_agent.errors import UserError
from vlm_agent.geometry import OPPOSITE, smart_resize

_NUDGES = 16
_HALF = 0.502
"""Halves are rounded up also where a point has lost digits: pixel 940 of 1080 on a grid of 999 is 869.5, and as a
float32 or with six decimals slightly less."""
_ROOM = 0.05
"""A swipe that is a start and a word starts at least this far from the edge towards which it goes, in fractions."""


class ScreenSizeError(UserError):
    """A language that counts pixels does not know the size of the screen."""


class Call(NamedTuple):
    """The name of an action in a text, and its arguments."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Scale:
    """The numbers of points on one screen.

    `height`, `width`: the numbers at the lower and right edge. `slack`: a number at most this far beyond an edge counts
    as the edge. `counts`: how many numbers a point may have; four are a box, whose centre is meant. `digits`: the
    decimals of numbers that are written. `whole`: whether other numbers than whole ones are refused. `quoted`: the
    numbers in a quoted point. `fractions`: whether numbers that are at most 1 are fractions of the screen. `finger`:
    swipe word → direction of the finger.
    """

    height: float = 1000
    width: float = 1000
    slack: float = 1
    counts: tuple[int, ...] = (2,)
    digits: int = 0
    whole: bool = False
    fractions: bool = False
    quoted: Callable[[str], list[float] | None] | None = None
    finger: Mapping[str, str] = field(default_factory=dict)

    def point(self, value: Any) -> tuple[float, float] | None:
        """(y, x) in screen fractions from [x, y], [x1, y1, x2, y2] or a quoted point; None for anything else."""
        if isinstance(value, str) and self.quoted is not None:
            value = self.quoted(value)
        if not isinstance(value, list) or len(value) not in self.counts:
            return None
        if not all(type(number) in (int, float) for number in value):
            return None
        x, y = value if len(value) == 2 else ((value[0] + value[2]) / 2, (value[1] + value[3]) / 2)
        if self.whole and (x % 1 or y % 1):
            return None
        height, width = (1, 1) if self.fractions and 0 <= x <= 1 and 0 <= y <= 1 else (self.height, self.width)
        slack = self.slack
        if not (-slack <= x <= width + slack and -slack <= y <= height + slack):  # also NaN
            return None
        return min(max(y / height, 0.0), 1.0), min(max(x / width, 0.0), 1.0)

    def steps(self, point_yx: tuple[float, float]) -> list[int]:
        """The nearest steps (y, x) to a point: units, halves up, or units of the last decimal."""
        return [self._step(y_or_x, side) for y_or_x, side in zip(point_yx, (self.height, self.width), strict=True)]

    def _step(self, part: float, side: float) -> int:
        if self.digits:
            return round(round(part * side, self.digits) * 10**self.digits)
        return min(max(math.floor(part * side + _HALF), 0), round(side))

    def fraction(self, steps: list[int]) -> tuple[float, float]:
        return steps[0] / 10**self.digits / self.height, steps[1] / 10**self.digits / self.width

    def ends(self, action: Action) -> tuple[list[int], list[int]]:
        """The steps of both ends of a swipe: the nearest ones, or the next that keep its direction."""
        start, end = self.steps(action.touch_yx), self.steps(action.lift_yx)
        axis, forward = int(action.direction in ("left", "right")), 1 if action.direction in ("down", "right") else -1
        most = round((self.height, self.width)[axis] * 10**self.digits)
        for _ in range(_NUDGES):
            if Action.swipe(self.fraction(start), self.fraction(end)).direction == action.direction:
                break
            if 0 <= end[axis] + forward <= most:
                end[axis] += forward
            else:
                start[axis] -= forward
        return start, end

    def swiped(self, word: Any, start_yx: tuple[float, float] | None = None) -> Action | None:
        """The swipe of a word: from `start_yx` half a screen on, or the one that stands for its direction."""
        finger = self.finger.get(word) if isinstance(word, str) else None
        if finger is None:
            return None
        if start_yx is None:
            return Action.swipe(*SWIPES[finger])
        axis, by = int(finger in ("left", "right")), 0.5 if finger in ("down", "right") else -0.5
        start = list(with_room(start_yx, finger))
        end = list(start)
        end[axis] = min(max(end[axis] + by, 0.0), 1.0)
        return Action.swipe((start[0], start[1]), (end[0], end[1]))


def with_room(point_yx: tuple[float, float], finger: str) -> tuple[float, float]:
    """The start of a swipe towards `finger`, moved off that edge so that the swipe is not a tap."""
    y, x = point_yx
    kept = {"up": (max(y, _ROOM), x), "down": (min(y, 1 - _ROOM), x), "left": (y, max(x, _ROOM))}
    return kept.get(finger, (y, min(x, 1 - _ROOM)))


Read = Callable[[Mapping[str, Any], Scale], Action | None]
"""The action of a call's arguments; None if they do not fit."""


@dataclass(frozen=True)
class Form:
    """One language.

    `call`: finds the call in a text. `reads`: name → meaning. `writes`: name of an action → its text, a template of %
    with the names x, y, x2, y2 (both ends), text and word. `around`: what is written around each text, which is its %s.
    `quote`: a text as the language writes it; `quotes`: that of an action by its name, where it differs. `words`:
    direction of the finger → swipe word. `point`: (x, y) → names of a template → numbers as the language writes them.
    `start_and_word`: whether a swipe is its start and a word.
    """

    call: Callable[[str], Call | None]
    reads: Mapping[str, Read]
    writes: Mapping[str, str]
    quote: Callable[[str], str]
    quotes: Mapping[str, Callable[[str], str]] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=lambda: {name: name for name in SWIPES})
    point: Callable[[float, float], dict[str, str]] = lambda x, y: {"x": str(round(x)), "y": str(round(y))}
    start_and_word: bool = False
    scale: Scale = Scale()
    around: str = "%s"


@dataclass(frozen=True)
class ReleasedLanguage(ActionLanguage):
    """The codec of one language with its settings."""

    settings: "ReleasedSettings"

    ending = ActionLanguage.ending  # mypy takes a method that only raises for an abstract one

    @property
    def form(self) -> Form:
        return self.settings.FORM

    @property
    def max_tokens(self) -> int:
        return 512  # released agents think before they act

    @property
    def instructions(self) -> str:
        shown = Screen(None, size=(2400, 1080))
        examples = [Action.tap(0.25, 0.5), *(Action.swipe(*SWIPES[name]) for name in ("up", "left"))]
        examples += [Action.type_text("hello"), *map(Action.press, ("back", "home", "enter"))]
        examples += [Action.complete(), Action.impossible()]
        return (
            "Answer with one action in one of these forms (examples on a screen of 1080 x 2400 pixels):\n"
            + "\n".join(self.encode(action, shown) for action in examples)
        )

    def encode(self, action: Action, screen: Screen | None = None, swipe_target: str | None = None) -> str:
        """Raises ScreenSizeError in a language of pixels, if the screen has no size."""
        form, scale = self.form, self._scale(screen)
        quote = form.quotes.get(action.name, form.quote)
        values: dict[str, Any] = {"text": quote(action.text)} if action.kind.facts.has_text else {}
        if action.is_swipe:
            finger = str(action.direction)
            values["word"] = form.words[OPPOSITE[finger] if self.settings.opposite else finger]
            if form.start_and_word:
                values |= self._numbers(scale.steps(with_room(action.touch_yx, finger)), scale)
            else:
                start, end = scale.ends(action)
                values |= self._numbers(start, scale) | self._numbers(end, scale, "2")
        elif action.kind.facts.points:
            values |= self._numbers(scale.steps(action.touch_yx), scale)
        return form.around % form.writes[action.name] % values

    def decode(self, text: str, screen: Screen | None = None) -> Action | None:
        """Raises ScreenSizeError in a language of pixels, if the screen has no size."""
        scale = self._scale(screen)
        try:
            call = self.form.call(text)
            read = None if call is None else self.form.reads.get(call.name)
            return None if call is None or read is None else read(call.arguments, scale)
        except (ValueError, OverflowError):  # 1.2.3, a text that is not valid Unicode, an integer beyond a float
            return None

    def picture_size(self, screen: Screen) -> tuple[int, int] | None:
        return None if screen.size is None else self.settings.sees(screen.size)

    def vocabulary(self) -> LanguageVocabulary:
        """The text of each kind of action up to its first value."""
        templates = (self.form.around % template for template in self.form.writes.values())
        starts = dict.fromkeys(template.partition("%(")[0] for template in templates)
        return LanguageVocabulary(tuple(start for start in starts if start))

    def _numbers(self, steps: list[int], scale: Scale, suffix: str = "") -> dict[str, str]:
        written = self.form.point(steps[1] / 10**scale.digits, steps[0] / 10**scale.digits)
        return {f"{name}{suffix}": number for name, number in written.items()}

    def _scale(self, screen: Screen | None) -> Scale:
        size = screen.size if screen is not None and self.settings.counts_pixels else None
        if size not in self._scales:
            if size is None and self.settings.counts_pixels:
                raise ScreenSizeError(
                    f"action_language {self.settings.name} counts pixels and needs the size of the screen, which this "
                    "step does not have; use shards or a device with screens, or another action_language"
                )
            finger = {
                word: OPPOSITE[name] if self.settings.opposite else name for name, word in self.form.words.items()
            }
            height, width = (
                (self.form.scale.height, self.form.scale.width) if size is None else self.settings.sees(size)
            )
            self._scales[size] = replace(self.form.scale, finger=finger, height=height, width=width)
        return self._scales[size]

    @cached_property
    def _scales(self) -> dict[tuple[int, int] | None, Scale]:
        """Size of a screen → its scale. Phones have few sizes."""
        return {}


class ReleasedSettings(LanguageSettings):
    """A language of a released agent, without settings."""

    FORM: ClassVar[Form]
    counts_pixels: ClassVar[bool] = False

    @property
    def opposite(self) -> bool:
        """Whether swipe words mean the opposite finger of the form's."""
        return False

    def sees(self, size: tuple[int, int]) -> tuple[int, int]:
        """(height, width) of the picture whose pixels are counted, for a screen of that `size`."""
        return size

    def build(self) -> ReleasedLanguage:
        return ReleasedLanguage(self)


class DisputedSettings(ReleasedSettings):
    """`opposite_swipe_words`: whether swipe words mean the opposite finger; published readers disagree, and the module
    has the evidence for the default."""

    opposite_swipe_words: bool = False

    @property
    def opposite(self) -> bool:
        return self.opposite_swipe_words


class PixelSettings(ReleasedSettings):
    """`multiple`, `min_pixels`, `max_pixels`: the rule that resizes the agent's pictures (`geometry.smart_resize`). The
    defaults are those of the agent's authors."""

    counts_pixels: ClassVar[bool] = True
    multiple: Annotated[int, Field(ge=1)] = 28
    min_pixels: Annotated[int, Field(ge=1)] = 3_136
    max_pixels: Annotated[int, Field(ge=1)] = 12_845_056

    @model_validator(mode="after")
    def _usable(self) -> "PixelSettings":
        if self.min_pixels > self.max_pixels:
            raise ValueError(f"min_pixels is {self.min_pixels}, greater than max_pixels, {self.max_pixels}")
        return self

    def sees(self, size: tuple[int, int]) -> tuple[int, int]:
        return smart_resize(size, self.multiple, self.min_pixels, self.max_pixels)
