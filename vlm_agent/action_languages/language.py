"""The protocol of an action language, and the base class of its settings."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from vlm_agent.episodes import Action, Screen
from vlm_agent.settings import Section

DECISION = "Action Decision:"
"""The text between a plan and the decision."""

SWIPES = {
    "up": ((0.8, 0.5), (0.2, 0.5)),
    "down": ((0.2, 0.5), (0.8, 0.5)),
    "left": ((0.5, 0.8), (0.5, 0.2)),
    "right": ((0.5, 0.2), (0.5, 0.8)),
}
"""Direction of the finger → touch and lift point of the swipe that stands for it (Auto-UI, section 3.3)."""


@dataclass(frozen=True)
class Coordinate:
    """A piece of text that encodes a coordinate on one axis.

    `piece`: the text of one token, spaces included. In `tap at 30 12` the pieces are `30 ` and `12`, so y and x
    coordinates never share a token. `axis`: 0 for y, 1 for x. `place`: the coordinate in screen fractions.
    """

    piece: str
    axis: int
    place: float


@dataclass(frozen=True)
class LanguageVocabulary:
    """The texts that are one token each in a tokenizer trained from scratch: phrases (`tap at `) and coordinates.

    Coordinates are ordered by axis, y first, and then by place.
    """

    phrases: tuple[str, ...]
    coordinates: tuple[Coordinate, ...] = ()

    def axis(self, axis: int) -> Sequence[Coordinate]:
        """The coordinates on one axis, 0 for y and 1 for x."""
        return [coordinate for coordinate in self.coordinates if coordinate.axis == axis]


class ActionLanguage(Protocol):
    """A stateless codec between actions and text.

    `decode(encode(action))` equals `action` up to the quantization that the language documents. Variants subclass this
    protocol to inherit its defaults.
    """

    @property
    def needs_elements(self) -> bool:
        """Whether an answer refers to elements by their number on the screen: a prompt has to show the numbers, and
        `decode` needs the elements."""
        return False

    @property
    def name_swipe_targets(self) -> bool:
        """Whether `encode` uses `swipe_target`."""
        return False

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens that an agent decodes for one action, end mark included."""
        return 64

    @property
    @abstractmethod
    def instructions(self) -> str:
        """A description of the language for the prompt of a model that was not trained on it."""

    @abstractmethod
    def encode(self, action: Action, screen: Screen | None = None, swipe_target: str | None = None) -> str:
        """The action as text.

        `screen`: for a language that names or numbers the touched element. `swipe_target`: the name of the element
        that a swipe should bring into view, used if `name_swipe_targets` is true.
        """

    def in_words(self, action: Action, screen: Screen) -> str:
        """The action as a line of an earlier step whose screen is not shown."""
        return self.encode(action, screen)

    @abstractmethod
    def decode(self, text: str, screen: Screen | None = None) -> Action | None:
        """The action that `text` encodes, None if it encodes none. Never raises, and never evaluates `text` as code."""

    def problem(self, text: str, screen: Screen | None = None) -> str | None:
        """Why `decode` returns None, for a model that is asked again; None if `text` is an action."""
        return "the answer is not one of the actions" if self.decode(text, screen) is None else None

    def predicted_box(self, text: str, screen: Screen | None = None) -> tuple[float, float, float, float] | None:
        """The box (y, x, height, width) that a tap names, in screen fractions; None in a language without boxes."""
        return None

    def picture_size(self, screen: Screen) -> tuple[int, int] | None:
        """(height, width) of the picture as the language counts it, by default that of the screen; None if unknown."""
        return screen.size

    @abstractmethod
    def vocabulary(self) -> LanguageVocabulary:
        """The phrases and coordinates that a tokenizer trained from scratch needs."""

    def ending(self, text: str) -> str | None:
        """Text that completes `text` to an action: "" if `text` is an action, None if no completion exists.

        Constrained decoding requires it. The default raises NotImplementedError: decoding is then unconstrained.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define ending()")

    @property
    def has_ending(self) -> bool:
        """Whether the language defines `ending`, so that decoding can be constrained to it."""
        return type(self).ending is not ActionLanguage.ending


class LanguageSettings(Section):
    """Settings of one action language; `name` is its key in `LANGUAGES`."""

    name: str

    def build(self) -> ActionLanguage:
        """The language of these settings."""
        raise NotImplementedError(f"{type(self).__name__} must define build()")
