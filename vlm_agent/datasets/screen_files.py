"""Screens that lie as PNG files beside their annotations, whoever wrote those."""

import re
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, UnidentifiedImageError

from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.step_checks import is_screen_size

_FORMATS = ("PNG",)
"""Not all that Pillow reads: it starts other programs for some, and notices damage in few."""

_EIGHT_BIT_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA")

_BROKEN = (OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError, struct.error, zlib.error)
"""What Pillow raises on damaged files."""


def beside(path: Path, name: str) -> Path:
    """The file in the folder of `path` that has the last part of `name`, so that no name leads out of the folder."""
    last = re.split(r"[\\/]", name)[-1]
    if last in ("", ".", "..") or len(last) > 255 or not last.isprintable():
        raise DatasetError(f"{name[:200]!r} does not name a file")
    return path.parent / last


def read_screen(path: Path) -> np.ndarray:
    """The screen in a file as uint8 (height, width, 3) RGB.

    Raises DatasetError where there is none, its pixels are damaged, or it is larger than any phone's, which its header
    tells before a pixel is decoded.
    """
    try:
        if not path.is_file():
            raise DatasetError(f"the screen {path.name} is not there")
        with path.open("rb") as file:
            _check(file, path.name)
            with Image.open(file, formats=_FORMATS) as image:
                return np.array(image.convert("RGB"))
    except DatasetError:
        raise
    except UnidentifiedImageError:
        raise DatasetError(f"the screen {path.name} is no PNG") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DatasetError(f"the screen {path.name} is larger than any phone's") from None
    except _BROKEN as error:
        raise DatasetError(f"the screen {path.name} cannot be read: {error}") from None


def _check(file: BinaryIO, name: str) -> None:
    with Image.open(file, formats=_FORMATS) as image:
        width, height = image.size
        if not is_screen_size(height, width):
            raise DatasetError(f"the screen {name} has {height}×{width} pixels, more than any phone")
        if image.mode not in _EIGHT_BIT_MODES:
            raise DatasetError(f"the screen {name} has pixels of mode {image.mode}, expected 8 bits a channel")
        # Decoding does not look at a PNG's checksums and lets some damage pass; this does, and spends the image.
        image.verify()
    file.seek(0)
