"""The protocol of an action language, and the base class of its settings."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from vlm_agent.episodes import KINDS_WITH_TEXT, KINDS_WITH_TOUCH, Action, Screen
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


class ActionColumns(Protocol):
    """The actions of S steps as arrays; implemented by `datasets.shards.columns.Columns`.

    `action_kind`: int8 (S,), values of `ActionKind`. `action`: int64 (S,), indices into `ACTION_NAMES`. `touch_yx`,
    `lift_yx`: float32 (S, 2), (y, x) in screen fractions. `direction`: int64 (S,), indices into `DIRECTIONS`, for
    swipes. `text`: Arrow strings (S,).
    """

    @property
    def action_kind(self) -> np.ndarray: ...

    @property
    def action(self) -> np.ndarray: ...

    @property
    def touch_yx(self) -> np.ndarray: ...

    @property
    def lift_yx(self) -> np.ndarray: ...

    @property
    def direction(self) -> np.ndarray: ...

    @property
    def text(self) -> pa.StringArray: ...

    def steps_that(self, action: str) -> np.ndarray:
        """bool (S,): whether the name of a step's action is `action`, one of `ACTION_NAMES`."""
        ...


class ActionLanguage(Protocol):
    """A stateless codec between actions and text.

    `decode(encode(action))` equals `action` up to the quantization that the language documents. Variants subclass this
    protocol to inherit its defaults.
    """

    @property
    def names_touched_elements(self) -> bool:
        """Whether `encode` uses the name of the element under the touch point, and nothing else of `screen`."""
        return False

    @property
    def numbers_elements(self) -> bool:
        """Whether `encode` uses the number of the element nearest to the touch point (`geometry.nearest_box`), and
        nothing else of `screen`. A language either names elements or numbers them."""
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
        ...

    @abstractmethod
    def encode(self, action: Action, screen: Screen | None = None, swipe_target: str | None = None) -> str:
        """The action as text.

        `screen`: used if `names_touched_elements` or `numbers_elements` is true. `swipe_target`: the name of the
        element that a swipe should bring into view, used if `name_swipe_targets` is true.
        """
        ...

    def in_words(self, action: Action, screen: Screen) -> str:
        """The action as a line of an earlier step whose screen is not shown."""
        return self.encode(action, screen)

    @abstractmethod
    def decode(self, text: str, screen: Screen | None = None) -> Action | None:
        """The action that `text` encodes, None if it encodes none. Never raises, and never evaluates `text` as code."""
        ...

    def problem(self, text: str, screen: Screen | None = None) -> str | None:
        """Why `decode` returns None, for a model that is asked again; None if `text` is an action."""
        return "the answer is not one of the actions" if self.decode(text, screen) is None else None

    def predicted_box(self, text: str, screen: Screen | None = None) -> tuple[float, float, float, float] | None:
        """The box (y, x, height, width) that a tap names, in screen fractions; None in a language without boxes."""
        return None

    @abstractmethod
    def vocabulary(self) -> LanguageVocabulary:
        """The phrases and coordinates that a tokenizer trained from scratch needs."""
        ...

    def text_keys(self, columns: ActionColumns, names: np.ndarray | None = None) -> np.ndarray:
        """int64 (S,): one key per step. Steps with equal keys have equal text, so each key is encoded only once.

        `names`: str objects (S,), the name of the touched element or of the swipe target, "" for neither; for a
        language that numbers elements, the number of the touched one. None for a language that uses no element. The
        default distinguishes all different actions and is correct for every language. A language that quantizes saves
        time with coarser keys.
        """
        keys = [columns.action_kind, *columns.touch_yx.T, *columns.lift_yx.T, text_codes(columns.text)]
        return combined_keys(*keys, *([] if names is None else [text_codes(pa.array(names, pa.string()))]))

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


LanguageRegistry = Mapping[str, type[LanguageSettings]]


_LARGEST_KEY = 1 << 62  # above it, values are replaced by their ranks to avoid int64 overflow


def combined_keys(*columns: np.ndarray) -> np.ndarray:
    """int64 (S,): equal for two steps exactly if all `columns` (S,), of any numeric dtype, are equal for them."""
    keys, count = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        values = column.astype(np.int64) if column.dtype.kind in "iu" and column.min(initial=0) >= 0 else _ranks(column)
        size = int(values.max(initial=0)) + 1
        if count * size > _LARGEST_KEY:
            keys, values = _ranks(keys), _ranks(values)
            size = int(values.max(initial=0)) + 1
            count = int(keys.max(initial=0)) + 1
        keys, count = keys * size + values, count * size
    return keys


def rounded_text_keys(columns: ActionColumns, units: int, direction: np.ndarray) -> np.ndarray:
    """`ActionLanguage.text_keys` of a language that rounds touch points to 1 / `units` and writes of a swipe its
    direction alone. `direction`: int (S,), indices into `DIRECTIONS`."""
    swipes, has_touch = columns.steps_that("swipe"), np.isin(columns.action_kind, KINDS_WITH_TOUCH)
    rounded = np.rint(columns.touch_yx.astype(np.float64) * units).astype(np.int64)
    points = np.where((has_touch & ~swipes)[:, None], rounded, 0)
    texts = np.where(np.isin(columns.action_kind, KINDS_WITH_TEXT), text_codes(columns.text), 0)
    return combined_keys(columns.action_kind, *points.T, np.where(swipes, 1 + direction, 0), texts)


def text_codes(texts: pa.Array) -> np.ndarray:
    """int32 (S,): equal for two steps exactly if their texts are equal."""
    return texts.dictionary_encode().indices.to_numpy()


def _ranks(values: np.ndarray) -> np.ndarray:
    """int64 (S,): the rank of each value among the distinct values."""
    return np.unique(values, return_inverse=True)[1]
