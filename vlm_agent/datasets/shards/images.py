"""Encoding of stored screens; the default is PNG (`vlm_agent.files.png`), which is lossless."""

import io
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from PIL import Image

from vlm_agent.errors import DatasetError
from vlm_agent.files.png import check_pixels, encode_png
from vlm_agent.geometry import smart_resize

IMAGE_FORMATS = ("png", "webp", "jpeg")
"""`png` and `webp` are lossless, `jpeg` is not."""

QWEN_VL_MULTIPLE = 28
"""Sides of a screen are multiples of this in Qwen2-VL and Qwen2.5-VL: 14-pixel patches, merged 2×2. Qwen3-VL: 32."""


class EncodedScreen(NamedTuple):
    data: bytes
    height: int
    width: int


@dataclass(frozen=True)
class ScreenFormat:
    """The image format of stored screens. With `max_pixels`, larger screens are downscaled first (see `fitted_size`).

    `quality` (1 to 100) is only for JPEG, which keeps colour at full resolution (4:4:4), so that small red text stays
    legible.
    """

    name: str = "png"
    quality: int = 90
    max_pixels: int | None = None
    multiple: int = QWEN_VL_MULTIPLE

    def __post_init__(self) -> None:
        if self.name not in IMAGE_FORMATS:
            raise DatasetError(f"image format {self.name!r} is unknown; there are {', '.join(IMAGE_FORMATS)}")
        if not 1 <= self.quality <= 100:
            raise DatasetError(f"a JPEG's quality is 1 to 100, got {self.quality}")
        if self.multiple < 1:
            raise DatasetError(f"a screen's sides are multiples of 1 or more, got {self.multiple}")
        if self.max_pixels is not None and self.max_pixels < self.multiple**2:
            raise DatasetError(
                f"no screen has at most {self.max_pixels} pixels and sides that are multiples of {self.multiple}"
            )

    def described(self) -> dict[str, str | int]:
        """The arguments of this format, without those that have no effect."""
        used: dict[str, str | int] = {"name": self.name}
        if self.name == "jpeg":
            used["quality"] = self.quality
        if self.max_pixels is not None:
            used |= {"max_pixels": self.max_pixels, "multiple": self.multiple}
        return used

    def keeps(self, size: tuple[int, int]) -> bool:
        """Whether a PNG of this (height, width) is stored as it is."""
        return self.name == "png" and (
            self.max_pixels is None or fitted_size(size, self.max_pixels, self.multiple) == size
        )

    def encode(self, screen: np.ndarray) -> EncodedScreen:
        """Encodes uint8 (height, width, 3) RGB pixels; the result has the stored size."""
        check_pixels(screen)
        if self.max_pixels is not None:
            height, width = fitted_size(screen.shape[:2], self.max_pixels, self.multiple)
            if (height, width) != screen.shape[:2]:
                screen = np.asarray(Image.fromarray(screen).resize((width, height), Image.Resampling.BICUBIC))
        data = encode_png(screen) if self.name == "png" else self._encode_by_pillow(screen)
        return EncodedScreen(data, *screen.shape[:2])

    def _encode_by_pillow(self, screen: np.ndarray) -> bytes:
        file = io.BytesIO()
        if self.name == "webp":
            # Method 0 is not smaller than our PNG; methods above 1 take up to three times as long for a few percent.
            Image.fromarray(screen).save(file, "WEBP", lossless=True, quality=0, method=1)
        else:
            Image.fromarray(screen).save(file, "JPEG", quality=self.quality, subsampling=0)
        return file.getvalue()


def fitted_size(size: tuple[int, int], max_pixels: int, multiple: int) -> tuple[int, int]:
    """The (height, width) at which a screen of `size` is stored: its own size if it is within `max_pixels`.

    A larger screen gets the size that Qwen-VL's image processor would give it, so that the processor leaves the stored
    screen unchanged. Only a strip so narrow that its short side has to grow to `multiple` keeps more than `max_pixels`.
    """
    height, width = size
    if round(height / multiple) * round(width / multiple) * multiple**2 <= max_pixels:
        return size
    return smart_resize(size, multiple, 0, max_pixels)
