"""Pixels → `Understood`: texts, widgets, parts, meanings of icons, blocks, the active tab.

readers = Readers()
understood = understand(pixels, readers)
print(describe(understood))
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import ModuleType
from typing import Annotated, Any

import numpy as np
from pydantic import Field, field_validator

from vlm_agent.files.png import check_pixels
from vlm_agent.screens.matching import make_parts
from vlm_agent.screens.seen import Block, Box, IconReader, Part, TextReader, Understood, WidgetDetector
from vlm_agent.screens.text import (
    SMALLEST,
    TEXT_READERS,
    Confident,
    RapidOcrSettings,
    TextSettings,
    missing_extra,
    without_repeats,
)
from vlm_agent.settings import Section, chosen_from

ICON_KINDS = ("button", "image")
"""The kinds of widgets whose meaning is read from their picture if no text names them."""

LARGEST_ICON = 0.3
"""Wider or higher widgets, in widths of the screen, are pictures without a meaning."""


class Readers(Section):
    """The models that read a screen. `text`: a reader of `TEXT_READERS`, by name or with its settings. `widgets`: a
    detector of `widgets.DETECTORS`. `icons`: a reader of icons; `icon_score`: guesses below it are dropped.
    """

    text: Annotated[TextSettings, chosen_from(TEXT_READERS, default="rapidocr")] = RapidOcrSettings()
    widgets: str = "phone_widgets_tiny"
    icons: str = "phone_icons_tiny"
    icon_score: Annotated[float, Field(ge=0, le=1)] = 0.5

    @field_validator("text", mode="before")
    @classmethod
    def _accept_name(cls, content: Any) -> Any:
        return {"name": content} if isinstance(content, str) else content

    def load(self) -> "LoadedReaders":
        """The models, loaded once in a process for equal settings."""
        return _load(self)


@dataclass(frozen=True)
class LoadedReaders:
    """The models of `Readers`. `icons` None: meanings are not read."""

    text: TextReader
    widgets: WidgetDetector
    icons: IconReader | None = None
    icon_score: float = 0.5

    def load(self) -> "LoadedReaders":
        return self


@lru_cache(maxsize=4)
def _load(readers: Readers) -> LoadedReaders:
    # Imported here, as OpenCV below: settings of agents contain `Readers`, and every command reads those.
    from vlm_agent.screens.icons import read_icons
    from vlm_agent.screens.widgets import read_widgets

    widgets, icons = read_widgets(readers.widgets), read_icons(readers.icons)
    return LoadedReaders(readers.text.load(), widgets, icons, readers.icon_score)


@dataclass
class Seconds:
    """Seconds of each stage, in the order of the stages."""

    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def of(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.stages[stage] = time.perf_counter() - start


def understand(pixels: np.ndarray, readers: Readers | LoadedReaders, seconds: Seconds | None = None) -> Understood:
    """Reads one screen: `pixels` is uint8 (height, width, 3), RGB.

    A picture on which nothing is found, or with a side below `SMALLEST`, gives an empty result.
    Raises DatasetError for pixels of another form.
    """
    check_pixels(pixels)
    loaded, clock = readers.load(), seconds or Seconds()
    size = (pixels.shape[0], pixels.shape[1])
    if min(size) < SMALLEST:
        return Understood(size, (), (), (), ())
    with clock.of("text"):
        reader = loaded.text
        likely, unsure = reader.split(pixels) if isinstance(reader, Confident) else (reader.read(pixels), ())
        texts = without_repeats(likely)
    with clock.of("widgets"):
        widgets = loaded.widgets.detect(pixels)
    with clock.of("matching"):
        parts = make_parts(texts, widgets, size)
    with clock.of("icons"):
        parts = _with_meanings(pixels, parts, loaded)
    with clock.of("blocks"):
        active = _blocks().active_tabs(pixels, parts)
        blocks, parts = in_blocks(pixels, tuple(replace(part, selected=part.id in active) for part in parts))
    return Understood(size, texts, widgets, parts, blocks, unsure)


def _with_meanings(pixels: np.ndarray, parts: tuple[Part, ...], loaded: LoadedReaders) -> tuple[Part, ...]:
    """The parts, those of an icon without a text with its most likely meaning."""
    icons = [part for part in parts if _is_icon(part, pixels.shape)]
    if loaded.icons is None or not icons:
        return parts
    guesses = loaded.icons.read([crop(pixels, part.box) for part in icons])
    meanings = {
        part.id: found[0].name
        for part, found in zip(icons, guesses, strict=True)
        if found and found[0].score >= loaded.icon_score
    }
    return tuple(replace(part, meaning=meanings.get(part.id, "")) for part in parts)


def _is_icon(part: Part, shape: tuple[int, ...]) -> bool:
    height, width = part.box[2] * shape[0] / shape[1], part.box[3]
    return part.kind in ICON_KINDS and not part.text and max(height, width) <= LARGEST_ICON


def crop(pixels: np.ndarray, box: Box) -> np.ndarray:
    """The pixels in `box`, at least one; what lies outside the picture is cut off."""
    height, width = pixels.shape[:2]
    (top, bottom), (left, right) = _span(box[0], box[2], height), _span(box[1], box[3], width)
    return pixels[top:bottom, left:right]


def _span(start: float, length: float, limit: int) -> tuple[int, int]:
    """The first and the last pixel but one of a side of a box, at least one apart."""
    first = min(max(round(start * limit), 0), limit - 1)
    return first, max(first + 1, min(round((start + length) * limit), limit))


def in_blocks(pixels: np.ndarray, parts: tuple[Part, ...]) -> tuple[tuple[Block, ...], tuple[Part, ...]]:
    """Blocks, and the parts numbered in the order of the blocks.

    `pixels` is uint8 (height, width, 3), RGB. The id of each part is its index in `parts`.
    """
    blocks = _blocks().find_blocks(pixels, parts)
    order = [index for block in blocks for index in block.parts]
    number = {index: new for new, index in enumerate(order)}
    renumbered = tuple(replace(parts[index], id=number[index]) for index in order)
    return tuple(replace(block, parts=tuple(number[index] for index in block.parts)) for block in blocks), renumbered


def _blocks() -> ModuleType:
    """The package `blocks`, which needs OpenCV. Raises UserError where that cannot be imported."""
    try:
        from vlm_agent.screens import blocks
    except ImportError as error:
        raise missing_extra(f"{error.name} ({error})") from None
    return blocks
