"""The protocol of an action language, and the base class of its settings."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from vlm_agent.episodes import Action, Screen
from vlm_agent.settings import Section


@dataclass(frozen=True)
class Coordinate:
    """A piece of text that stands for a place on one axis: `axis` 0 is y, 1 is x; `place` is a fraction of the axis.

    A piece is what one token should hold, spaces included: in `tap at 30 12` the row is `30 ` and the column `12`, so
    that rows and columns never share a token.
    """

    piece: str
    axis: int
    place: float


@dataclass(frozen=True)
class LanguageVocabulary:
    """What a tokenizer trained from scratch gives one token each: fixed phrases (`tap at `), and coordinates.

    Coordinates are ordered by axis, y first, and then by place.
    """

    phrases: tuple[str, ...]
    coordinates: tuple[Coordinate, ...] = ()

    def axis(self, axis: int) -> Sequence[Coordinate]:
        return [coordinate for coordinate in self.coordinates if coordinate.axis == axis]


class ActionColumns(Protocol):
    """The actions of S steps as arrays (`datasets.shards.columns.Columns` is one).

    `action_kind`: int8 (S,). `action`: int64 (S,), indices into `ACTION_NAMES`. `touch_yx`, `lift_yx`: float32 (S, 2).
    `direction`: int64 (S,), indices into `DIRECTIONS`, for swipes. `text`: Arrow strings (S,).
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
        """bool (S,): whether a step's action has this name of `ACTION_NAMES`."""
        ...


class ActionLanguage(Protocol):
    """How an action is written for a model, and read back: a codec without state.

    `decode(encode(action))` is `action` up to the resolution that the language documents. A variant subclasses this
    class to inherit its defaults.
    """

    @property
    def names_touched_elements(self) -> bool:
        """Whether `encode` uses `screen`: the name of the element under the touch point, and nothing else of it."""
        return False

    @property
    def name_swipe_targets(self) -> bool:
        """Whether `encode` uses `swipe_target`."""
        return False

    @property
    def max_tokens(self) -> int:
        """The most tokens that an agent decodes for one action, end mark included."""
        return 64

    @property
    @abstractmethod
    def instructions(self) -> str:
        """A description of the language for a model that was not trained on it."""
        ...

    @abstractmethod
    def encode(self, action: Action, screen: Screen | None = None, swipe_target: str | None = None) -> str:
        """The action as text.

        `screen`: used by languages that name elements. `swipe_target`: the name of what the swipe should bring into
        view, used where `name_swipe_targets` is true.
        """
        ...

    @abstractmethod
    def decode(self, text: str, screen: Screen | None = None) -> Action | None:
        """The action that `text` encodes, None where it encodes none. Never raises and never evaluates."""
        ...

    @abstractmethod
    def vocabulary(self) -> LanguageVocabulary:
        """The phrases and coordinates that a tokenizer trained from scratch needs."""
        ...

    def text_keys(self, columns: ActionColumns, names: np.ndarray | None = None) -> np.ndarray:
        """int64 (S,): a key for each step; steps with equal keys have equal text, so each key is encoded only once.

        `names`: str objects (S,), the name of the touched element or of the swipe target, "" where there is none; None
        for a language that uses neither. The default distinguishes all actions that differ in any way, which is right
        for every language; a language with a coarser text saves time by coarser keys.
        """
        keys = [columns.action_kind, *columns.touch_yx.T, *columns.lift_yx.T, text_codes(columns.text)]
        return combined_keys(*keys, *([] if names is None else [text_codes(pa.array(names, pa.string()))]))

    def ending(self, text: str) -> str | None:
        """Text that completes `text` to an action: "" where it is one, None where no text does.

        Constrained decoding needs it; a language without it is decoded freely.
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


_LARGEST_KEY = 1 << 62  # above it, ranks replace values, so that products stay within int64


def combined_keys(*columns: np.ndarray) -> np.ndarray:
    """int64 (S,): equal where all columns (S,), of any numbers, are equal."""
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


def text_codes(texts: pa.Array) -> np.ndarray:
    """int32 (S,): equal where texts are equal."""
    return texts.dictionary_encode().indices.to_numpy()


def _ranks(values: np.ndarray) -> np.ndarray:
    return np.unique(values, return_inverse=True)[1]
