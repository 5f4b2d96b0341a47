"""Lines of text in the pixels of a screen: RapidOCR (PP-OCR on ONNX Runtime), and a cache of what it read.

VisionTasker reads texts by PaddleOCR and keeps those of a confidence of 0.95 and above (section 4.2). RapidOCR runs the
same family of models without Paddle. It reads Chinese and English, and loads no file from the network.
"""

import hashlib
import math
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from vlm_agent.errors import DatasetError, UserError
from vlm_agent.files import read_checked, write_checked
from vlm_agent.files.installation import install_line
from vlm_agent.screens.seen import Box, Text, TextReader, area, reading_order, shared
from vlm_agent.settings import Section

PACKAGES = ("rapidocr", "onnxruntime", "cv2")
"""What the reader imports, from the extra `[screens]`."""


class TextSettings(Section):
    """Settings of a text reader."""

    def load(self) -> TextReader:
        raise NotImplementedError


class NoTextSettings(TextSettings):
    """Reads nothing: for screens without text, and tests."""

    name: Literal["none"] = "none"

    def load(self) -> TextReader:
        return NoText()


class RapidOcrSettings(TextSettings):
    """`longest_side`: larger pictures are scaled down to it to find lines, in pixels; time grows with its square. The
    lines themselves are read as large as they are. `confidence`: texts below it are dropped; 0.95 as in the paper.
    `cache`: a folder that keeps what was read, by the pictures' digest. `threads`: of ONNX Runtime; 0 for one per core.
    """

    name: Literal["rapidocr"] = "rapidocr"
    longest_side: Annotated[int, Field(ge=64)] = 1600
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.95
    cache: str | None = None
    threads: Annotated[int, Field(ge=0)] = 0

    UNUSED_BY_CACHE: ClassVar = {"cache", "threads", "confidence"}

    def load(self) -> TextReader:
        """Raises UserError if the package is not installed."""
        reader = RapidOcrReader(self.longest_side, self.threads)
        described = f"{reader.version} all lines {self.model_dump_json(exclude=self.UNUSED_BY_CACHE)}"
        cached: TextReader = reader if self.cache is None else CachedReader(reader, Path(self.cache), described)
        return Confident(cached, self.confidence)


TEXT_READERS: dict[str, type[TextSettings]] = {"rapidocr": RapidOcrSettings, "none": NoTextSettings}


class NoText:
    def read(self, pixels: np.ndarray) -> tuple[Text, ...]:
        return ()


@dataclass(frozen=True)
class Confident:
    """The texts of `reader` that are likely enough, without single symbols, which are icons that were read as text.

    Repeats are dropped last: an unlikely text, as in a picture, must not hide a likely one that it overlaps.
    """

    reader: TextReader
    confidence: float

    def read(self, pixels: np.ndarray) -> tuple[Text, ...]:
        return self.split(pixels)[0]

    def split(self, pixels: np.ndarray) -> tuple[tuple[Text, ...], tuple[Text, ...]]:
        """(the texts that are likely enough, the others)"""
        texts = [text for text in self.reader.read(pixels) if not is_stray(text.text)]
        likely = without_repeats([text for text in texts if text.confidence >= self.confidence])
        # The guard looks at all of these.
        return likely, tuple(text for text in texts if text.confidence < self.confidence)


def is_stray(text: str) -> bool:
    """Whether `text` has no letter and no digit: a symbol or a few, which is how icons and borders are misread."""
    return not any(unicodedata.category(character)[0] in "LN" for character in text)


Window = tuple[int, int, int, int]
"""(top, left, bottom, right) in pixels."""

SHAPE, OVERLAP = 2.5, 0.25
"""Pictures that are longer than `SHAPE` times their shorter side are cut into windows of this shape, because a tall
page would be scaled down until its texts cannot be read. Windows overlap by `OVERLAP` of the shorter side, so that each
line is whole in one of them."""

SMALLEST = 8
"""Pictures with a smaller side, in pixels, hold no text that could be read, and no widget."""


class RapidOcrReader:
    """RapidOCR on one screen at a time. Threads may share it; they wait for each other."""

    def __init__(self, longest_side: int, threads: int = 0) -> None:
        self._longest_side, self._threads = longest_side, threads
        self._lock = threading.Lock()
        self._engine: Callable[[np.ndarray], Any] | None = None
        missing = [name for name in PACKAGES if find_spec(name) is None]
        if missing:
            raise missing_extra(", ".join(missing))
        self.version = f"{PACKAGES[0]} {metadata.version(PACKAGES[0])}"

    def read(self, pixels: np.ndarray) -> tuple[Text, ...]:
        """All texts, whatever their confidence. A picture that is longer than a screen is read in several windows, and
        a text in two of them is returned twice."""
        if min(pixels.shape[:2]) < SMALLEST:
            return ()
        windows = windows_of(pixels.shape[:2], self._longest_side)
        with self._lock:
            return tuple(line for window in windows for line in self._lines(pixels, window))

    def _lines(self, pixels: np.ndarray, window: Window) -> Iterator[Text]:
        top, left, bottom, right = window
        found = self._load()(np.ascontiguousarray(pixels[top:bottom, left:right, ::-1]))
        if found.boxes is not None:
            for corners, text, score in zip(found.boxes, found.txts, found.scores, strict=True):
                yield Text(_box(corners + np.array([left, top]), pixels), text, float(score))

    def _load(self) -> Callable[[np.ndarray], Any]:
        if self._engine is None:
            try:
                from rapidocr import RapidOCR
            except ImportError as error:  # there, but not loadable: OpenCV without a system library
                raise UserError(f"RapidOCR cannot be imported: {error}; {install_line('screens')}") from None
            self._engine = RapidOCR(params=self._parameters())
        return self._engine

    def _parameters(self) -> dict[str, Any]:
        return {
            "Global.log_level": "critical",
            "Global.use_cls": False,  # texts of a screen are not upside down
            "Global.text_score": 0.0,
            "Global.max_side_len": 10**6,  # lines are read at their own size
            "Det.limit_type": "max",
            "Det.limit_side_len": self._longest_side,
            "EngineConfig.onnxruntime.intra_op_num_threads": self._threads or -1,
        }


def windows_of(size: tuple[int, ...], longest_side: int) -> list[Window]:
    """Overlapping windows that cover a picture of `size` (height, width); the picture itself if it is no longer than a
    screen."""
    height, width = size
    short, long = sorted((height, width))
    length = max(round(SHAPE * short), longest_side)
    overlap = min(round(OVERLAP * short), length // 2)
    count = 1 if long <= length else 1 + math.ceil((long - length) / (length - overlap))
    starts = [round(index * (long - length) / max(1, count - 1)) for index in range(count)]
    spans = [(start, min(start + length, long)) for start in starts]
    return [(start, 0, end, width) if height == long else (0, start, height, end) for start, end in spans]


def without_repeats(texts: Sequence[Text]) -> tuple[Text, ...]:
    """The texts, and only the largest of those that overlap by more than half of the smaller one, in reading order.

    A line that a window cuts is smaller than the same line in the next window.
    """
    kept: list[Text] = []
    for text in sorted(texts, key=lambda text: (-text.box[2] * text.box[3], text.box, text.text)):
        if not any(shared(text.box, other.box) > 0.5 * area(text.box) for other in kept):
            kept.append(text)
    return tuple(kept[index] for index in reading_order([text.box for text in kept]))


def missing_extra(what: str) -> UserError:
    return UserError(f"reading screens from pixels needs {what}; install it by: {install_line('screens')}")


def _box(corners: np.ndarray, pixels: np.ndarray) -> Box:
    """The upright box around the four corners (x, y) of a line, within the picture."""
    height, width = pixels.shape[:2]
    x, y = np.clip(corners[:, 0], 0, width) / width, np.clip(corners[:, 1], 0, height) / height
    return (float(y.min()), float(x.min()), float(y.max() - y.min()), float(x.max() - x.min()))


@dataclass(frozen=True)
class CachedReader:
    """Keeps what `reader` read in `folder`, a JSON file a picture, named by the digest of its pixels and `settings`."""

    reader: TextReader
    folder: Path
    settings: str

    def read(self, pixels: np.ndarray) -> tuple[Text, ...]:
        digest = hashlib.sha256(f"{self.settings} {pixels.shape} {pixels.dtype}\n".encode())
        digest.update(np.ascontiguousarray(pixels).data)
        path = self.folder / f"{digest.hexdigest()}.json"
        texts = _read_cached(path)
        if texts is None:
            texts = self.reader.read(pixels)
            write_checked(path, {"texts": [[text.box, text.text, text.confidence] for text in texts]})
        return texts


def _read_cached(path: Path) -> tuple[Text, ...] | None:
    """What a file of the cache holds; None where it is missing or damaged, so that the screen is read again."""
    try:
        rows = read_checked(path, "move it away")["texts"]
        return tuple(Text((y, x, height, width), text, score) for (y, x, height, width), text, score in rows)
    except (DatasetError, ValueError, TypeError, KeyError):
        return None
