"""Random brightness, contrast, colour balance and transparency (VisionTasker, section 4.1)."""

import random

import numpy as np
from PIL import Image

from vlm_agent.simulator.drawing.canvas import Box

LEAST_OPACITY = 0.6
"""A widget that is more transparent is hard to see for people too."""


def change_colours(pixels: np.ndarray, rng: random.Random, most: float) -> np.ndarray:
    """`pixels` (uint8 (height, width, 3)) with other brightness, contrast and colour balance; returns uint8.

    `most`: the largest change of each, as a fraction.
    """
    brightness, contrast = (1 + rng.uniform(-most, most) for _ in range(2))
    balance = np.array([1 + rng.uniform(-most, most) / 2 for _ in range(3)], np.float32)
    values = pixels.astype(np.float32) * (brightness * balance)
    mean = values.mean()
    return np.clip((values - mean) * contrast + mean, 0, 255).round().astype(np.uint8)


def change_patch(image: Image.Image, before: Image.Image, area: Box, rng: random.Random) -> None:
    """Changes the pixels of `image` in `area` (left, top, right, bottom) that differ from `before`: their colours, and
    their opacity over `before`."""
    area = (max(0, area[0]), max(0, area[1]), min(image.width, area[2]), min(image.height, area[3]))
    below, patch = np.asarray(before.crop(area)), np.asarray(image.crop(area))
    drawn = (below != patch).any(axis=2, keepdims=True)
    if not drawn.any():
        return
    opacity = rng.uniform(LEAST_OPACITY, 1.0)
    mixed = below * (1 - opacity) + change_colours(patch, rng, 0.25) * opacity
    image.paste(Image.fromarray(np.where(drawn, mixed.round(), below).astype(np.uint8)), area[:2])
