"""`vlm-agent inspect --screen`: the words, the seconds and the drawing of one screen, and bad pictures."""

import re

import numpy as np
import pytest
from PIL import Image, ImageDraw

from vlm_agent.cli import FAILED, OK, USAGE, main
from vlm_agent.drawing.shapes import font


@pytest.fixture
def screen(tmp_path):
    image = Image.new("RGB", (320, 400), "white")
    draw = ImageDraw.Draw(image)
    draw.text((20, 60), "Bluetooth", "black", font(24))
    draw.ellipse((240, 200, 280, 240), fill="red")
    path = tmp_path / "screen.png"
    image.save(path)
    return path


def inspect(*options: object) -> int:
    return main(["inspect", *map(str, options)])


@pytest.mark.ocr
def test_a_screen_is_printed_in_words_and_its_stages_are_drawn(screen, tmp_path, capsys):
    drawing = tmp_path / "new" / "stages.png"
    assert inspect("--screen", screen, "--output", drawing, "--widgets", "edges", "--icons", "none") == OK
    printed = capsys.readouterr().out
    assert re.search(r"^0 title: Bluetooth$", printed, re.MULTILINE)
    assert re.search(r"^1 image$", printed, re.MULTILINE)
    for stage in ("text", "widgets", "matching", "icons", "blocks"):
        assert re.search(rf"{stage} +\d+\.\d\d", printed)
    with Image.open(drawing) as image:
        assert image.width >= 5 * 320
        assert image.height >= 400


@pytest.mark.ocr
@pytest.mark.parametrize("mode", ["L", "RGBA", "1", "P", "LA", "I;16"])
def test_pictures_of_other_modes_are_read(tmp_path, capsys, mode):
    image = Image.new("L", (200, 60), 255)
    ImageDraw.Draw(image).text((20, 15), "Sound", 0, font(24))
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) * 257)
    else:
        image = image.convert("RGB").convert(mode)
    image.save(tmp_path / "one.png")
    assert inspect("--screen", tmp_path / "one.png", "--widgets", "edges", "--icons", "none") == OK
    assert "Sound" in capsys.readouterr().out


@pytest.mark.parametrize("size", [(1, 1), (300, 1), (1, 20000), (5, 5)])
def test_a_picture_without_anything_says_so(tmp_path, capsys, size):
    Image.new("RGB", size, "green").save(tmp_path / "one.png")
    drawing = tmp_path / "drawing.png"
    options = ("--widgets", "edges", "--icons", "none", "--output", drawing)
    assert inspect("--screen", tmp_path / "one.png", *options) == OK
    assert "Nothing was found on this screen." in capsys.readouterr().out
    assert drawing.is_file()


def _write_bomb(path):
    """The header of a PNG of 20,000 x 20,000 pixels."""
    Image.new("1", (20000, 20000)).save(path)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.write_bytes(b""), "is not a picture"),
        (lambda path: path.write_text("a text"), "is not a picture"),
        (lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 99), "is not a picture|is damaged"),
        (_write_bomb, "too large to be a screen"),
    ],
)
def test_a_file_that_is_not_a_picture_is_one_line(tmp_path, capsys, write, message):
    path = tmp_path / "bad.png"
    write(path)
    assert inspect("--screen", path) == FAILED
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert str(path) in error
    assert error.count("\n") == 1


def test_a_picture_that_ends_early_is_one_line(screen, capsys):
    screen.write_bytes(screen.read_bytes()[:500])
    assert inspect("--screen", screen) == FAILED
    assert "is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--screen FILE"),
        (("SHARDS", "--screen", "FILE"), "choose one of --screen and SHARDS"),
        (("SHARDS", "--words", "zh"), "add --screen FILE"),
        (("--screen", "FILE", "--draw", "first"), "--screen reads one picture; remove --draw"),
        (("--screen", "FILE", "--output", "FILE.jpg"), "must end in .png"),
        (("--screen", "FILE", "--words", "fr"), "invalid choice"),
    ],
)
def test_options_that_do_not_fit_are_refused(capsys, options, message):
    with pytest.raises(SystemExit) as exit_:
        inspect(*options)
    assert exit_.value.code == USAGE
    assert message in capsys.readouterr().err


def test_an_unknown_reader_is_one_line(screen, capsys):
    assert inspect("--screen", screen, "--widgets", "yolo") == FAILED
    assert "'yolo' is unknown" in capsys.readouterr().err
