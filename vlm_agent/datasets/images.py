"""Screens to bytes and back, without loss.

PNG with every row stored as its difference to the row above (filter 2) and deflated by ISA-L at its fastest level.
Screens are flat areas and repeated rows, so this one filter does nearly as well as trying all five for each row, and
it is a single numpy subtraction.
"""

import io
import struct

import numpy as np
from isal import isal_zlib
from PIL import Image

from vlm_agent.datasets import DatasetError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_UP_FILTER = 2


def encode_png(screen: np.ndarray) -> bytes:
    """A PNG of uint8 (height, width, 3) RGB pixels."""
    if screen.dtype != np.uint8 or screen.ndim != 3 or screen.shape[2] != 3:
        raise DatasetError(f"a screen is uint8 (height, width, 3), got {screen.dtype} {screen.shape}")
    height, width = screen.shape[:2]
    rows = screen.reshape(height, width * 3)
    filtered = np.empty((height, 1 + width * 3), np.uint8)
    filtered[:, 0] = _UP_FILTER
    filtered[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = isal_zlib.compress(filtered, 1)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def decode_screen(data: bytes) -> np.ndarray:
    """uint8 (height, width, 3) RGB pixels of any image that Pillow reads."""
    with Image.open(io.BytesIO(data)) as image:
        return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _chunk(name: bytes, data: bytes) -> bytes:
    checksum = isal_zlib.crc32(data, isal_zlib.crc32(name))
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", checksum)
