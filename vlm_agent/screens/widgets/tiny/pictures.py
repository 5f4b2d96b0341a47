"""Screens as the network reads them: one width for phones of every resolution."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

from vlm_agent.screens.widgets.tiny.network import MULTIPLE

LONGEST = 8192
"""The most pixels of a side that the network reads; longer pictures are reduced further."""


@dataclass(frozen=True)
class Picture:
    """`pixels`: uint8 (height, width, 3) at the network's scale, without padding."""

    pixels: np.ndarray

    @property
    def size(self) -> tuple[int, int]:
        return (self.pixels.shape[0], self.pixels.shape[1])


def scaled(pixels: np.ndarray, side: int) -> Picture:
    """The screen with `side` pixels along its shorter side, or fewer where the longer one would exceed `LONGEST`."""
    high, wide = pixels.shape[:2]
    scale = min(side / min(high, wide), LONGEST / max(high, wide))
    size = (max(1, round(wide * scale)), max(1, round(high * scale)))
    if size == (wide, high):
        return Picture(pixels)
    return Picture(np.array(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR)))


def batch(pictures: Sequence[Picture]) -> torch.Tensor:
    """(B, 3, H, W) float32, about -2 to 2, padded with 0 at the bottom and on the right to a common size."""
    high, wide = (_padded(max(picture.size[axis] for picture in pictures)) for axis in (0, 1))
    result = torch.zeros((len(pictures), 3, high, wide)).contiguous(memory_format=torch.channels_last)
    for at, picture in enumerate(pictures):
        values = torch.from_numpy(np.ascontiguousarray(picture.pixels)).permute(2, 0, 1).float()
        result[at, :, : picture.size[0], : picture.size[1]] = (values - 127.5) / 64
    return result


def _padded(length: int) -> int:
    return -(-length // MULTIPLE) * MULTIPLE
