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
from typing import Annotated, Any

import numpy as np
from pydantic import Field, field_validator

from vlm_agent.errors import UserError
from vlm_agent.screens.matching import make_parts
from vlm_agent.screens.seen import Block, IconReader, Part, TextReader, Understood, WidgetDetector
from vlm_agent.screens.text import TEXT_READERS, RapidOcrSettings, TextSettings
from vlm_agent.screens.widgets import read_widgets
from vlm_agent.settings import Section, chosen_from

ICON_KINDS = ("button", "image")
"""The kinds of widgets whose meaning is read from their picture if no text names them."""


class Readers(Section):
    """The models that read a screen. `text`: a reader of `TEXT_READERS`, by name or with its settings. `widgets`: a
    detector of `widgets.DETECTORS`. `icons`: a reader of icons; `icon_score`: guesses below it are dropped.
    """

    text: Annotated[TextSettings, chosen_from(TEXT_READERS, default="rapidocr")] = RapidOcrSettings()
    widgets: str = "edges"
    icons: str = "none"
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
    return LoadedReaders(readers.text.load(), read_widgets(readers.widgets), None, readers.icon_score)


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

    A picture on which nothing is found gives an empty result. Raises UserError for pixels of another form.
    """
    check_pixels(pixels)
    loaded, clock = readers.load(), seconds or Seconds()
    size = (pixels.shape[0], pixels.shape[1])
    with clock.of("text"):
        texts = loaded.text.read(pixels)
    with clock.of("widgets"):
        widgets = loaded.widgets.detect(pixels)
    with clock.of("matching"):
        parts = make_parts(texts, widgets, size)
    with clock.of("blocks"):
        blocks, parts = _in_blocks(pixels, parts)
    return Understood(size, texts, widgets, parts, blocks)


def check_pixels(pixels: np.ndarray) -> None:
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size:
        raise UserError(f"a screen must be uint8 (height, width, 3), RGB, not {pixels.dtype} {pixels.shape}")


def _in_blocks(pixels: np.ndarray, parts: tuple[Part, ...]) -> tuple[tuple[Block, ...], tuple[Part, ...]]:
    """Blocks, and the parts numbered in the order of the blocks."""
    if not parts:
        return (), ()
    blocks: tuple[Block, ...] = (Block((0.0, 0.0, 1.0, 1.0), tuple(part.id for part in parts)),)
    order = [index for block in blocks for index in block.parts]
    number = {index: new for new, index in enumerate(order)}
    renumbered = tuple(replace(parts[index], id=number[index]) for index in order)
    return tuple(replace(block, parts=tuple(number[index] for index in block.parts)) for block in blocks), renumbered
