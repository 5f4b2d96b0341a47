"""Screens as they are read from pixels, each picture once in a process."""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np

from vlm_agent.episodes import Screen, UiElement
from vlm_agent.screens.seen import Understood
from vlm_agent.screens.understand import Readers, understand

_REMEMBERED = 4096
"""Screens whose result is kept. It holds no pixels: some kilobytes a screen."""


@dataclass
class ScreenReader:
    """Reads one picture at a time, because the readers use all cores by themselves. Thread-safe."""

    readers: Readers
    _memory: OrderedDict[bytes, Understood] = field(default_factory=OrderedDict, repr=False, compare=False)
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    @classmethod
    def of(cls, readers: Readers) -> "ScreenReader":
        """The reader of these settings in this process."""
        return _reader(readers)

    def read(self, pixels: np.ndarray) -> Understood:
        """`pixels`: uint8 (height, width, 3), RGB. Raises UserError for pixels of another form."""
        key = hashlib.sha256(repr(pixels.shape).encode() + np.ascontiguousarray(pixels).tobytes()).digest()
        with self._lock:
            if (known := self._memory.get(key)) is None:
                known = self._memory[key] = understand(pixels, self.readers)
                if len(self._memory) > _REMEMBERED:
                    self._memory.popitem(last=False)
            self._memory.move_to_end(key)
            return known

    def elements(self, pixels: np.ndarray) -> tuple[UiElement, ...]:
        return self.read(pixels).elements

    def screen(self, screen: Screen) -> Screen:
        """The screen with its elements read from its pixels; None without pixels."""
        return replace(screen, elements=None if screen.pixels is None else self.elements(screen.pixels))

    def __reduce__(self) -> tuple:
        """Another process has a memory of its own."""
        return ScreenReader.of, (self.readers,)


def readers_identity(readers: Readers) -> dict[str, Any]:
    """What decides the result of reading, as JSON values."""
    return readers.model_dump(mode="json", exclude={"text": {"cache", "threads"}})


def in_words(readers: Readers) -> str:
    """A line for reports."""
    text = readers.text.model_dump()["name"]
    return f"read from pixels (text: {text}, widgets: {readers.widgets}, icons: {readers.icons})"


@lru_cache(maxsize=8)
def _reader(readers: Readers) -> ScreenReader:
    return ScreenReader(readers)
