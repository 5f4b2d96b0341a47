"""Screens as a model takes them: its size, channels first, still uint8; and how many tokens each becomes."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from PIL import Image


class ScreenRule(Protocol):
    """How one model takes screens."""

    def prepare(self, screenshot: np.ndarray) -> np.ndarray:
        """uint8 (height, width, 3) to the uint8 (3, height', width') that the model sees."""

    def blank(self, height: int, width: int) -> np.ndarray:
        """What stands for a screen of that size where nothing is to be seen."""

    def tokens(self, height: int, width: int) -> int:
        """The visual tokens that a screen of that size becomes."""


@dataclass(frozen=True)
class FixedScreens:
    """Every screen stretched to (height, width) = `size`, always `count` tokens: Llama+ViT, Qwen-VL (2023).

    Stretching keeps (y, x) fractions valid without bookkeeping; phones differ little in shape. `bicubic` is what
    Qwen-VL was trained on; bilinear, with the reduction before it, is the faster one.
    """

    size: tuple[int, int]
    count: int
    bicubic: bool = False

    def prepare(self, screenshot: np.ndarray) -> np.ndarray:
        resampling = Image.Resampling.BICUBIC if self.bicubic else Image.Resampling.BILINEAR
        return prepare_screen(screenshot, self.size, resampling)

    def blank(self, height: int, width: int) -> np.ndarray:
        return grey_screen(self.size)

    def tokens(self, height: int, width: int) -> int:
        return self.count


@dataclass(frozen=True)
class FittedScreens:
    """Screens in their own shape: both sides multiples of `multiple`, `min_pixels` to `max_pixels` in all; a token for
    each square of `multiple` pixels. Qwen2-VL, Qwen2.5-VL (28) and Qwen3-VL (32)."""

    min_pixels: int
    max_pixels: int
    multiple: int

    def prepare(self, screenshot: np.ndarray) -> np.ndarray:
        return prepare_screen(screenshot, self.fitted(*screenshot.shape[:2]), Image.Resampling.BICUBIC)

    def blank(self, height: int, width: int) -> np.ndarray:
        return grey_screen(self.fitted(height, width))

    def tokens(self, height: int, width: int) -> int:
        rows, columns = self.grid(height, width)
        return rows * columns

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """(rows, columns) of visual tokens."""
        fitted = self.fitted(height, width)
        return fitted[0] // self.multiple, fitted[1] // self.multiple

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        """The arithmetic of Qwen-VL's image processor (transformers, `smart_resize`)."""
        sides = tuple(round(side / self.multiple) * self.multiple for side in (height, width))
        if sides[0] * sides[1] > self.max_pixels:
            shrink = math.sqrt(height * width / self.max_pixels)
            return tuple(max(self.multiple, self._down(side / shrink)) for side in (height, width))
        if sides[0] * sides[1] < self.min_pixels:
            grow = math.sqrt(self.min_pixels / (height * width))
            return tuple(math.ceil(side * grow / self.multiple) * self.multiple for side in (height, width))
        return sides

    def _down(self, side: float) -> int:
        return math.floor(side / self.multiple) * self.multiple


def prepare_screen(
    screenshot: np.ndarray, size: tuple[int, int], resampling: Image.Resampling = Image.Resampling.BILINEAR
) -> np.ndarray:
    """uint8 (height, width, 3) to uint8 (3, *size), stretched to (height, width) = `size`.

    A screen that has the size already is not resampled, so its pixels stay exact.
    """
    if screenshot.shape[:2] != tuple(size):
        # Reducing first is as good for a filter that averages anyway; bicubic has to be what Qwen's processor gives.
        gap = 2.0 if resampling == Image.Resampling.BILINEAR else None
        resized = Image.fromarray(screenshot).resize((size[1], size[0]), resampling, reducing_gap=gap)
        screenshot = np.asarray(resized)
    return np.ascontiguousarray(screenshot.transpose(2, 0, 1))


def grey_screen(size: tuple[int, int]) -> np.ndarray:
    """What an agent sees that sees nothing: uint8 (3, *size), all 128. The control against guessing from the goal."""
    return np.full((3, *size), 128, np.uint8)
