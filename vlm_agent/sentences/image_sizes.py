"""Preprocessing of screens for a model: resizing to uint8 (3, height, width), and the number of visual tokens."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from vlm_agent.geometry import smart_resize


class ScreenRule:
    """How one model preprocesses screens, by default with bicubic resampling."""

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        """The model's (height', width') for a screenshot of `height` x `width` pixels."""
        raise NotImplementedError

    def tokens_of_prepared(self, height: int, width: int) -> int:
        """The number of visual tokens of a screen that `prepare` or `blank` returned, of `height` x `width` pixels.

        A prepared screen is not fitted again: a strip that is fitted twice becomes smaller.
        """
        raise NotImplementedError

    def prepare(self, screenshot: np.ndarray) -> np.ndarray:
        """uint8 (height, width, 3) → uint8 (3, height', width'), where (height', width') is `fitted(height, width)`."""
        return prepare_screen(screenshot, self.fitted(*screenshot.shape[:2]), Image.Resampling.BICUBIC)

    def blank(self, height: int, width: int) -> np.ndarray:
        """A grey screen of the shape that `prepare` returns for a screenshot of `height` x `width` pixels."""
        return np.full((3, *self.fitted(height, width)), 128, np.uint8)

    def tokens(self, height: int, width: int) -> int:
        """The number of visual tokens of a screenshot of `height` x `width` pixels."""
        return self.tokens_of_prepared(*self.fitted(height, width))


@dataclass(frozen=True)
class FixedScreens(ScreenRule):
    """Every screen is stretched to `size` = (height, width) and has `count` visual tokens: Llama+ViT, Qwen-VL (2023).

    Stretching keeps coordinates in screen fractions valid, and phones differ little in aspect ratio. Qwen-VL was
    trained with `bicubic` resampling; bilinear resampling after a box reduction is faster.
    """

    size: tuple[int, int]
    count: int
    bicubic: bool = False

    def prepare(self, screenshot: np.ndarray) -> np.ndarray:
        resampling = Image.Resampling.BICUBIC if self.bicubic else Image.Resampling.BILINEAR
        return prepare_screen(screenshot, self.size, resampling)

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        return self.size

    def tokens_of_prepared(self, height: int, width: int) -> int:
        return self.count


NO_PIXELS = FixedScreens((1, 1), 0)
"""The screens of a model that reads no pixels: a screen has no visual token."""


@dataclass(frozen=True)
class FittedScreens(ScreenRule):
    """Screens approximately keep their aspect ratio: Qwen2-VL, Qwen2.5-VL and Qwen3-VL.

    Both sides are multiples of `multiple` pixels (28; Qwen3-VL 32), the area is between `min_pixels` and `max_pixels`
    (see `smart_resize`), and each square of `multiple` x `multiple` pixels is one visual token. A strip whose aspect
    ratio exceeds `max_pixels` / `multiple`² is `multiple` pixels wide, and its area exceeds `max_pixels`.
    """

    min_pixels: int
    max_pixels: int
    multiple: int

    def tokens_of_prepared(self, height: int, width: int) -> int:
        return (height // self.multiple) * (width // self.multiple)

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        return smart_resize((height, width), self.multiple, self.min_pixels, self.max_pixels)


class CachedScreens(ScreenRule):
    """A `ScreenRule` with a cache: a screenshot that several sentences contain is prepared once.

    The cache is keyed by array identity; an entry is dropped when its screenshot is garbage-collected.
    `prepare_further` does more of the collator's work for a prepared screen; its result has the screen's `shape`.
    """

    def __init__(self, rule: ScreenRule, prepare_further: Callable[[np.ndarray], Any] | None = None) -> None:
        self._rule, self._prepare_further = rule, prepare_further
        self._prepared: dict[int, Any] = {}

    def prepare(self, screenshot: np.ndarray) -> Any:
        key = id(screenshot)
        if key not in self._prepared:
            self._prepared[key] = self._further(self._rule.prepare(screenshot))
            weakref.finalize(screenshot, self._prepared.pop, key).atexit = False
        return self._prepared[key]

    def _further(self, screen: np.ndarray) -> Any:
        return screen if self._prepare_further is None else self._prepare_further(screen)

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        return self._rule.fitted(height, width)

    def blank(self, height: int, width: int) -> Any:
        return self._further(self._rule.blank(height, width))

    def tokens_of_prepared(self, height: int, width: int) -> int:
        return self._rule.tokens_of_prepared(height, width)


def prepare_screen(
    screenshot: np.ndarray, size: tuple[int, int], resampling: Image.Resampling = Image.Resampling.BILINEAR
) -> np.ndarray:
    """Stretches uint8 (height, width, 3) to uint8 (3, *size), where `size` is (height, width).

    A screenshot that already has this size is not resampled.
    """
    if screenshot.shape[:2] != tuple(size):
        # A box reduction before bilinear resampling is faster. Bicubic resampling must equal Qwen's image processor.
        gap = 2.0 if resampling == Image.Resampling.BILINEAR else None
        resized = Image.fromarray(screenshot).resize((size[1], size[0]), resampling, reducing_gap=gap)
        screenshot = np.asarray(resized)
    return np.ascontiguousarray(screenshot.transpose(2, 0, 1))
