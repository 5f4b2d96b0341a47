"""A screen from a picture file of a person: a screenshot, or a photo of one."""

import warnings
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from vlm_agent.datasets.sources.checks import DAMAGED_FILE_ERRORS, MAX_PIXELS
from vlm_agent.errors import UserError

_FORMATS = ("PNG", "JPEG", "WEBP")


class PictureError(UserError):
    """A picture that cannot be used; the message names it and says why."""


def read_picture(file: Path | BinaryIO, name: str) -> np.ndarray:
    """The pixels of a PNG, JPEG or WebP file as every viewer shows them: uint8 (height, width, 3), RGB.

    The picture is turned as its EXIF says; grey and transparent pictures become RGB, and 16 bits of grey become 8. The
    size is checked in the header, before any pixel is decoded. `name`: the picture in messages. Raises PictureError,
    and OSError for a path that cannot be opened.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # below MAX_PIXELS
            with Image.open(file, formats=_FORMATS) as image:
                if image.height * image.width > MAX_PIXELS:
                    raise PictureError(
                        f"{name} is too large to be a screen: {image.height:,}×{image.width:,} pixels, and at most "
                        f"{MAX_PIXELS:,} are read"
                    )
                return np.array(_of_8_bits(ImageOps.exif_transpose(image)).convert("RGB"))
    except UnidentifiedImageError:
        raise PictureError(f"{name} is not a picture that can be read; use a PNG, JPEG or WebP file") from None
    except Image.DecompressionBombError as error:
        raise PictureError(f"{name} is too large to be a screen: {error}") from None
    except DAMAGED_FILE_ERRORS as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise PictureError(f"{name} is damaged: {error}") from None


def _of_8_bits(image: Image.Image) -> Image.Image:
    """Pillow would clip greys of 16 bits to white."""
    if not image.mode.startswith("I;16"):
        return image
    return Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
