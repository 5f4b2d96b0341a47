"""Screens as they are read from pixels, each picture once in a process."""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from vlm_agent.episodes import Screen, UiElement
from vlm_agent.errors import UserError
from vlm_agent.files import sha256_of
from vlm_agent.screens.seen import Understood
from vlm_agent.screens.understand import Readers, understand

_REMEMBERED = 4096
"""Screens whose result is kept. It holds no pixels: some kilobytes a screen."""

_CHECKPOINT = (".json", ".safetensors", ".bin", ".txt")


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
    """What decides the result of reading, as JSON values. `files`: digests of detectors and icon readers from files.

    Raises UserError for a file that does not exist.
    """
    identity = readers.model_dump(mode="json", exclude={"text": {"cache", "threads"}})
    paths = {name: identity[name].partition(":")[2] for name in ("widgets", "icons")}
    files = {name: _digest(Path(path)) for name, path in paths.items() if path}
    return identity | {"files": files} if files else identity


def readers_of(identity: Mapping[str, Any]) -> Readers:
    """The inverse of `readers_identity`."""
    return Readers.model_validate({name: value for name, value in identity.items() if name != "files"})


def in_words(readers: Readers) -> str:
    """A line for reports."""
    text = readers.text.model_dump()["name"]
    return f"read from pixels (text: {text}, widgets: {readers.widgets}, icons: {readers.icons})"


def _digest(path: Path) -> str:
    """The digest of a file, or of the files of a checkpoint."""
    if not path.exists():
        raise UserError(f"readers: {path} does not exist")
    paths = [path] if path.is_file() else [one for one in path.iterdir() if one.suffix in _CHECKPOINT]
    return sha256_of(sorted(paths))


@lru_cache(maxsize=8)
def _reader(readers: Readers) -> ScreenReader:
    return ScreenReader(readers)
