"""A person's picture is read as every viewer shows it."""

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from vlm_agent.screens.picture import PictureError, read_picture

ORIENTATION = 0x0112
FORMATS = ("PNG", "JPEG", "WEBP")


def written(path, kind: str, orientation: int, mode: str = "RGB") -> Image.Image:
    """A picture whose quarters differ, with an EXIF orientation; the image that viewers show."""
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    quarters = np.array([[0, 80], [160, 240]], np.uint8).repeat(24, 0).repeat(16, 1)
    image = Image.fromarray(quarters.astype(np.uint16) * 257) if mode == "I;16" else Image.fromarray(quarters)
    (image if mode == "I;16" else image.convert(mode)).save(path, kind, exif=exif)
    exif_only = Image.fromarray(quarters)
    exif_only.getexif()[ORIENTATION] = orientation
    return ImageOps.exif_transpose(exif_only)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", FORMATS)
def test_a_picture_is_turned_as_its_exif_says(tmp_path, kind, orientation):
    shown = np.asarray(written(tmp_path / "one", kind, orientation)).astype(int)
    for file in (tmp_path / "one", io.BytesIO((tmp_path / "one").read_bytes())):
        pixels = read_picture(file, "one")
        assert pixels.dtype == np.uint8
        assert pixels.shape == (*shown.shape, 3)
        assert abs(pixels[..., 0] - shown)[8::16, 8::16].max() < 12


@pytest.mark.parametrize("mode", ["L", "RGBA", "I;16"])
def test_pictures_of_every_mode_are_turned(tmp_path, mode):
    shown = np.asarray(written(tmp_path / "one", "PNG", 6, mode))
    assert (read_picture(tmp_path / "one", "one") == shown[..., None]).all()


def test_grey_levels_of_16_bits_are_not_clipped(tmp_path):
    Image.fromarray(np.array([[0, 0x8080, 0xFFFF]], np.uint16)).save(tmp_path / "grey.png")
    assert read_picture(tmp_path / "grey.png", "grey")[0, :, 0].tolist() == [0, 128, 255]


@pytest.mark.parametrize("end", range(4, 40, 3))
def test_damaged_exif_is_an_error_of_one_line_or_ignored(tmp_path, end):
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    data = exif.tobytes()
    Image.new("RGB", (8, 16)).save(tmp_path / "one.jpg", exif=data[:end] + b"\xff" * (len(data) - end))
    try:
        assert read_picture(tmp_path / "one.jpg", "one").ndim == 3
    except PictureError as error:
        assert str(error).startswith("one is damaged")


def test_a_file_of_another_kind_starts_no_other_program(tmp_path):
    (tmp_path / "one.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    with pytest.raises(PictureError, match="PNG, JPEG or WebP"):
        read_picture(tmp_path / "one.png", "one")
