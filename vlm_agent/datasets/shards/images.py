"""Encoding and decoding of screens.

The default is lossless: PNG with filter 2 (the difference to the row above) for every row, deflated by ISA-L at its
fast level. Screens have flat areas and repeated rows, so this filter compresses nearly as well as the best of all five
for each row, and it is a single numpy subtraction.
"""

import io
import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from isal import isal_zlib
from PIL import Image

from vlm_agent.datasets.formats.deflate import Deflater
from vlm_agent.errors import DatasetError
from vlm_agent.sentences.image_sizes import smart_resize

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_UP_FILTER = 2
_BAND_BYTES = 1 << 18  # half of the smallest common second-level cache of a core

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

    def encode(self, screen: np.ndarray) -> EncodedScreen:
        """Encodes uint8 (height, width, 3) RGB pixels; the result has the stored size."""
        _check(screen)
        if self.max_pixels is not None:
            screen = _resized(screen, fitted_size(screen.shape[:2], self.max_pixels, self.multiple))
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


def encode_png(screen: np.ndarray) -> bytes:
    """A PNG of uint8 (height, width, 3) RGB pixels."""
    _check(screen)
    height, width = screen.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = _deflated_rows(screen.reshape(height, width * 3))
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def _deflated_rows(rows: np.ndarray) -> bytes:
    """Filters and deflates one band of rows at a time, uint8 (height, 3 × width).

    A filtered band is still in the core's cache when it is deflated, so workers do not compete for memory bandwidth.
    The result is hardly larger than with a single band.
    """
    height, width = rows.shape
    count = max(1, _BAND_BYTES // (1 + width))
    band = np.empty((min(count, height), 1 + width), np.uint8)
    band[:, 0] = _UP_FILTER
    deflate = Deflater()
    band[0, 1:] = rows[0]
    parts = [deflate.compress(band[:1].reshape(-1).data)]
    for top in range(1, height, count):
        above, here = rows[top - 1 : top - 1 + count], rows[top : top + count]
        filtered = band[: len(here)]
        np.subtract(here, above[: len(here)], out=filtered[:, 1:])
        parts.append(deflate.compress(filtered.reshape(-1).data))
    parts.append(deflate.flush())
    return b"".join(parts)


def decode_screen(data: bytes) -> np.ndarray:
    """uint8 (height, width, 3) RGB pixels of any image that Pillow reads."""
    with Image.open(io.BytesIO(data)) as image:
        return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _check(screen: np.ndarray) -> None:
    if screen.dtype != np.uint8 or screen.ndim != 3 or screen.shape[2] != 3 or not screen.size:
        raise DatasetError(f"a screen is uint8 (height, width, 3), got {screen.dtype} {screen.shape}")


def _resized(screen: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    if screen.shape[:2] == size:
        return screen
    height, width = size
    return np.asarray(Image.fromarray(screen).resize((width, height), Image.Resampling.BICUBIC))


def _chunk(name: bytes, data: bytes) -> bytes:
    checksum = isal_zlib.crc32(data, isal_zlib.crc32(name))
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", checksum)
