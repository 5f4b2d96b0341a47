"""Shared by the sources: limits, reading of actions and elements with checks, screens in PNG files.

The content of a source's files is untrusted. Every function raises DatasetError, which names the source's key.
"""

import io
import json
import re
import reprlib
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError

from vlm_agent.datasets.formats.tf_example import Feature
from vlm_agent.episodes import NO_POINT, Action, ActionKind, UiElement
from vlm_agent.errors import DatasetError

MAX_SIDE = 16_383
MAX_PIXELS = 1 << 25
"""Screens beyond 16,383 pixels per side (the limit of WebP) or 33.5 megapixels are refused: no phone has such a screen,
so the numbers are damaged."""

MAX_TEXT_BYTES = 1 << 16
MAX_ELEMENTS = 1 << 12
"""Texts beyond 64 KiB and screens with more than 4,096 elements are refused, to bound memory."""

MAX_STEPS = 10_000
"""Longer episodes are refused: AITW's longest have a few dozen steps, damaged numbers billions."""

EDGE_TOLERANCE = 0.01
"""Points at most this far outside the screen, in screen fractions, are moved to its edge: AITW has points at −0.0011.

A touch screen reports a finger at its rim a few pixels beyond the picture, and 0.01 are 19 of 1,920 pixels. It is also
the width of a bin of the default action language, and a quarter of the distance that separates a tap from a swipe.
Points further away are in other units, or damaged.
"""

NOTE_KEYS = {
    "screen": "coat_screen_desc",
    "think": "coat_action_think",
    "action": "coat_action_desc",
    "result": "coat_action_result",
}
"""Name of a note → its key in Android in the Zoo, and in our records of AITW."""

AITW_KINDS = tuple(kind for kind in ActionKind if kind.is_in_aitw)

_SUBSET = re.compile(r"\w[\w +-]{0,99}")
"""Without a dot: `manifest.json` and the other files lie beside the folders of the subsets."""

_RESERVED_SUBSETS = ("all", "overall", "lock")
"""Words for all subsets together, and the lock file beside the entries of a conversion."""

_MAX_NUMBER = float(np.finfo(np.float32).max)


def is_screen_size(height: int, width: int) -> bool:
    return 1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE and height * width <= MAX_PIXELS


def check_subset(subset: str, where: str) -> None:
    """Raises DatasetError for a subset that cannot be the name of a folder, or is reserved.

    `where` is the file or key with the subset, for the message.
    """
    if not _SUBSET.fullmatch(subset) or subset in _RESERVED_SUBSETS:
        raise DatasetError(
            f"{where}: {reprlib.repr(subset)} cannot be the name of a subset; use letters, digits, '_' and '-', but "
            f"none of {', '.join(_RESERVED_SUBSETS)}"
        )


def check_position(episode_id: str, step_id: int, episode_length: int) -> None:
    """Checks ranges only. A `step_id` beyond the episode is a fault of the episode, not of this step."""
    if not (1 <= episode_length <= MAX_STEPS and 0 <= step_id < MAX_STEPS):
        raise DatasetError(f"step_id {step_id} of episode_length {episode_length} is not within 0 … {MAX_STEPS - 1}")
    if not episode_id:
        raise DatasetError("episode_id is empty")


def check_text(size: int, key: str) -> None:
    """`size` in bytes of UTF-8."""
    if size > MAX_TEXT_BYTES:
        raise DatasetError(f"{key} has {size} bytes, more than the limit of {MAX_TEXT_BYTES}")


class JsonFields:
    """The fields of a JSON object."""

    def __init__(self, content: object, required: Collection[str] = ()) -> None:
        if not isinstance(content, dict):
            raise DatasetError(f"the step is {reprlib.repr(content)}, expected an object with keys")
        self._content = content
        if missing := [key for key in required if key not in content]:
            raise DatasetError(f"missing key {', '.join(missing)}")

    def __contains__(self, key: str) -> bool:
        """Whether the key has a value other than null."""
        return self._content.get(key) is not None

    def value(self, key: str) -> object:
        if key not in self._content:
            raise DatasetError(f"missing key {key}")
        return self._content[key]

    def integer(self, key: str) -> int:
        value = self.value(key)
        if type(value) is not int or value.bit_length() > 63:
            raise DatasetError(f"{key} is {reprlib.repr(value)}, expected a whole number")
        return value

    def string(self, key: str) -> str:
        return text_of(self.value(key), key)

    def floats(self, key: str) -> list[float]:
        return numbers_of(self.value(key), key)


class ExampleFields:
    """Typed access to an Example's features; every error names the field. `kinds`: the kind of each feature."""

    def __init__(self, features: dict[str, Feature], kinds: Mapping[str, str], required: Collection[str]) -> None:
        self._features, self._kinds = features, kinds
        if missing := sorted(set(required) - features.keys()):
            raise DatasetError(f"missing field {', '.join(missing)}")

    def __contains__(self, name: str) -> bool:
        return name in self._features

    def values(self, name: str) -> list | np.ndarray:
        kind, values = self._features[name]
        if kind not in (None, self._kinds[name]):
            raise DatasetError(f"{name} is a list of {kind}, expected {self._kinds[name]}")
        return values

    def integer(self, name: str) -> int:
        values = self.values(name)
        if len(values) != 1:
            raise DatasetError(f"{name} has {len(values)} values, expected 1")
        return values[0]

    def string(self, name: str) -> str:
        """The string; an empty list counts as an empty string, because some writers omit empty values."""
        values = self.strings(name)
        if len(values) > 1:
            raise DatasetError(f"{name} has {len(values)} values, expected 1")
        return values[0] if values else ""

    def strings(self, name: str) -> list[str]:
        values = self.values(name)
        for value in values:
            check_text(len(value), name)
        try:
            return [str(value, "utf-8") for value in values]
        except UnicodeDecodeError as error:
            raise DatasetError(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from None

    def floats(self, name: str) -> list[float]:
        values = np.asarray(self.values(name), np.float32)
        if not np.isfinite(values).all():
            raise DatasetError(f"{name} holds a number that is not finite")
        return values.tolist()


def text_of(value: object, key: str) -> str:
    """The value of a JSON field that must be a text of accepted length."""
    text = unicode_of(value, key)
    check_text(len(text.encode("utf-8")), key)
    return text


def unicode_of(value: object, key: str) -> str:
    """The value of a JSON field that must be a text without lone surrogates; its length is not limited."""
    if not isinstance(value, str):
        raise DatasetError(f"{key} holds {reprlib.repr(value)}, expected a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DatasetError(f"{key} is not valid Unicode at character {error.start}: {error.reason}") from None
    return value


def numbers_of(values: object, key: str) -> list[float]:
    """The value of a JSON field that must be a list of finite numbers."""
    if not isinstance(values, list):
        raise DatasetError(f"{key} holds {reprlib.repr(values)}, expected a list")
    for value in values:
        if type(value) not in (int, float) or not -_MAX_NUMBER <= value <= _MAX_NUMBER:
            raise DatasetError(f"{key} holds {reprlib.repr(value)}, expected a finite number")
    return [float(value) for value in values]


def read_json(data: bytes, key: str) -> "JsonFields":
    """The fields of a JSON object. Raises DatasetError for other content."""
    try:
        return JsonFields(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{key} is not JSON: {error}") from None


class ActionKeys(NamedTuple):
    """The keys under which a source stores the parts of an action."""

    kind: str
    text: str
    touch: str
    lift: str


def read_action(
    fields: JsonFields | ExampleFields, keys: ActionKeys, known: Sequence[ActionKind] = AITW_KINDS
) -> tuple[Action, int]:
    """The action, whose type must be in `known`, and how many of its points were moved. Parts that its type does not
    use are not read.

    A point at most `EDGE_TOLERANCE` outside the screen is moved to its edge.
    """
    number = fields.integer(keys.kind)
    if number not in known:
        names = ", ".join(f"{kind.value} {kind.name}" for kind in known)
        raise DatasetError(f"{keys.kind} {number} is unknown; expected one of {names}")
    kind = ActionKind(number)
    points = [point_of(fields.floats(key), key) for key in (keys.touch, keys.lift)[: kind.facts.points]]
    (touch, touch_moved), (lift, lift_moved) = [*points, (NO_POINT, False), (NO_POINT, False)][:2]
    text = fields.string(keys.text) if kind.facts.has_text else ""
    return Action(kind, touch, lift, text), touch_moved + lift_moved


def point_of(values: Sequence[float], key: str) -> tuple[tuple[float, float], bool]:
    """A point (y, x) in screen fractions, and whether it was moved to the edge of the screen."""
    if len(values) != 2:
        raise DatasetError(f"{key} has {len(values)} values, expected 2 (y, x)")
    if not all(-EDGE_TOLERANCE <= value <= 1 + EDGE_TOLERANCE for value in values):
        raise DatasetError(
            f"{key} is {tuple(values)}; a gesture needs (y, x) within [0, 1], or at most {EDGE_TOLERANCE} outside it"
        )
    y, x = (min(max(value, 0.0), 1.0) for value in values)
    return (y, x), [y, x] != list(values)


def elements_of(boxes: Sequence[float], texts: Sequence[str], types: Sequence[str], key: str) -> tuple[UiElement, ...]:
    """`boxes` is flat, with four numbers per element: y, x, height, width in screen fractions."""
    if not (len(boxes) == 4 * len(texts) == 4 * len(types)):
        raise DatasetError(
            f"{key}: {len(boxes)} positions, {len(texts)} texts and {len(types)} ui_types do not match (4 positions "
            "per element)"
        )
    if len(texts) > MAX_ELEMENTS:
        raise DatasetError(f"{key}: {len(texts)} elements, more than the limit of {MAX_ELEMENTS}")
    each = zip(*[iter(boxes)] * 4, strict=True)
    return tuple(UiElement(*element) for element in zip(each, texts, types, strict=True))


_FORMATS = ("PNG",)
"""Only formats that Pillow reads without starting other programs and in which it detects damage."""

_EIGHT_BIT_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA")

DAMAGED_FILE_ERRORS = (OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError, struct.error, zlib.error)
"""The exceptions that Pillow raises for damaged files."""


def beside(path: Path, name: str) -> Path:
    """The file in the folder of `path` with the last part of `name`, so that no name leads out of the folder."""
    last = re.split(r"[\\/]", name)[-1]
    if last in ("", ".", "..") or not last.isprintable() or len(last.encode()) > 255:
        raise DatasetError(f"{name[:200]!r} does not name a file")
    return path.parent / last


def read_screen(path: Path) -> np.ndarray:
    """The screen in a PNG file as uint8 (height, width, 3) RGB.

    Raises DatasetError for a file that is missing, damaged, or larger than the screen of any phone. The size is checked
    in the header, before any pixel is decoded.
    """
    with _named_damage(path.name):
        if not path.is_file():
            raise DatasetError(f"the screen {path.name} is missing")
        with path.open("rb") as file:
            _check_screen(file, path.name)
            file.seek(0)
            with Image.open(file, formats=_FORMATS) as image:
                return np.array(image.convert("RGB"))


def check_screen(data: bytes | memoryview, name: str) -> tuple[int, int]:
    """The (height, width) of a PNG, after a check of its header and its checksums; no pixel is decoded.

    Raises DatasetError as `read_screen` does.
    """
    with _named_damage(name):
        return _check_screen(io.BytesIO(data), name)


@contextmanager
def _named_damage(name: str) -> Iterator[None]:
    try:
        yield
    except UnidentifiedImageError:
        raise DatasetError(f"the screen {name} is not a PNG") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DatasetError(f"the screen {name} is larger than any phone's") from None
    except DAMAGED_FILE_ERRORS as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the file system, which may answer when the command runs again
        raise DatasetError(f"the screen {name} cannot be read: {error}") from None


def _check_screen(file: BinaryIO, name: str) -> tuple[int, int]:
    with Image.open(file, formats=_FORMATS) as image:
        width, height = image.size
        if not is_screen_size(height, width):
            raise DatasetError(f"the screen {name} has {height}×{width} pixels, more than any phone's")
        if image.mode not in _EIGHT_BIT_MODES:
            raise DatasetError(f"the screen {name} has pixels of mode {image.mode}, expected 8 bits per channel")
        # Decoding ignores a PNG's checksums and misses some damage. `verify` checks them, and consumes the image.
        image.verify()
    return height, width
