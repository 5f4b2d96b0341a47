"""Screens as a model takes them: one size, channels first, still uint8."""

import numpy as np
from PIL import Image


def prepare_screen(screenshot: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """uint8 (height, width, 3) to uint8 (3, *size), stretched to (height, width) = `size`.

    Stretching keeps (y, x) fractions valid without bookkeeping; phones differ little in shape. A screen that has the
    size already is not resampled, so its pixels stay exact.
    """
    if screenshot.shape[:2] != tuple(size):
        resized = Image.fromarray(screenshot).resize((size[1], size[0]), Image.Resampling.BILINEAR, reducing_gap=2.0)
        screenshot = np.asarray(resized)
    return np.ascontiguousarray(screenshot.transpose(2, 0, 1))


def grey_screen(size: tuple[int, int]) -> np.ndarray:
    """What an agent sees that sees nothing: uint8 (3, *size), all 128. The control against guessing from the goal."""
    return np.full((3, *size), 128, np.uint8)
