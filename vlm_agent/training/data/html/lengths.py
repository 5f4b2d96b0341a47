"""The tokens of screens as HTML, from the elements of the shards."""

import hashlib
from collections.abc import Sequence
from typing import overload

import numpy as np
import pyarrow as pa

from vlm_agent.episodes import Screen, UiElement
from vlm_agent.errors import RecipeError
from vlm_agent.sentences.html import screen_html
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.training.data.count_cache import CountCache
from vlm_agent.training.data.text_lengths import TextLengths, text_lengths

_NOWHERE = (0.0, 0.0, 0.0, 0.0)


def html_lengths(elements: pa.ChunkedArray, sentences: TrajectorySentences, cache: CountCache | None) -> np.ndarray:
    """int64 (S,): tokens of each screen. `elements`: those of each screen, from `listed_elements`.

    Raises RecipeError if no screen has an element.
    """
    if sentences.grey:
        return np.zeros(len(elements), np.int64)
    if len(elements) and not any(len(chunk.flatten()) for chunk in elements.chunks):
        raise RecipeError(
            "a text model reads the elements of screens, and these shards have none; convert a source with elements, "
            "or choose a model with vision"
        )
    texts = _HtmlTexts(elements)

    def measure(numbers: Sequence[int]) -> TextLengths:
        every = isinstance(numbers, range) and len(numbers) == len(texts)
        return text_lengths(sentences, texts if every else [texts[number] for number in numbers], check=False)

    if cache is None:
        return measure(range(len(texts))).tokens.astype(np.int64)
    return cache.lengths(sentences, texts.digest(), len(texts), measure).tokens.astype(np.int64)


class _HtmlTexts(Sequence[str]):
    """The HTML of each screen, written when it is asked for: that of a million screens takes a gigabyte."""

    def __init__(self, elements: pa.ChunkedArray) -> None:
        self._elements = elements

    def __len__(self) -> int:
        return len(self._elements)

    @overload
    def __getitem__(self, number: int) -> str: ...

    @overload
    def __getitem__(self, number: slice) -> list[str]: ...

    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            first, last, _ = number.indices(len(self))
            return [_html(screen) for screen in self._elements.slice(first, last - first).to_pylist()]
        return _html(self._elements[number].as_py())

    def digest(self) -> bytes:
        """sha256 of everything that the texts are written from."""
        digest = hashlib.sha256(b"html")
        for chunk in self._elements.chunks:
            digest.update(np.diff(chunk.offsets.to_numpy()).tobytes())
            of_chunk = chunk.flatten()
            for name in ("text", "type"):
                texts = of_chunk.field(name).to_pylist()
                digest.update(repr([len(text) for text in texts]).encode())
                digest.update("".join(texts).encode("utf-8", "surrogatepass"))
        return digest.digest()


def _html(elements: list[dict]) -> str:
    return screen_html(Screen(None, tuple(UiElement(_NOWHERE, each["text"], each["type"]) for each in elements)))
