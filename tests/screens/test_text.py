"""Lines of text from pixels: RapidOCR, what is dropped, and the cache."""

import logging
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from pydantic import ValidationError

from vlm_agent.drawing.shapes import font
from vlm_agent.errors import UserError
from vlm_agent.screens.seen import Text
from vlm_agent.screens.text import CachedReader, Confident, RapidOcrReader, RapidOcrSettings, is_stray


def page(*lines: str, size: tuple[int, int] = (160, 320)) -> np.ndarray:
    """Black lines on white, 40 px apart."""
    image = Image.new("RGB", (size[1], size[0]), "white")
    for number, line in enumerate(lines):
        ImageDraw.Draw(image).text((20, 20 + 40 * number), line, "black", font(22))
    return np.array(image)


class Counting:
    """Reads one text and counts how often."""

    def __init__(self) -> None:
        self.count = 0

    def read(self, pixels: np.ndarray) -> tuple[Text, ...]:
        self.count += 1
        return (Text((0.1, 0.2, 0.3, 0.4), "设置 é", 0.96),)


@pytest.fixture(scope="module")
def reader() -> RapidOcrReader:
    return RapidOcrReader(longest_side=640, threads=1)


@pytest.mark.ocr
def test_lines_are_read_where_they_are_drawn(reader, caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        texts = reader.read(page("Network", "Sound"))
    assert [text.text for text in texts] == ["Network", "Sound"]
    for number, text in enumerate(texts):
        y, x, height, width = text.box
        assert abs((y + height / 2) * 160 - (33 + 40 * number)) < 5
        assert abs(x * 320 - 20) < 8
        assert 0.1 < width < 0.5
        assert text.confidence > 0.95
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


@pytest.mark.ocr
def test_a_screen_without_text_has_no_texts(reader):
    assert reader.read(page()) == ()
    assert reader.read(np.zeros((1, 1, 3), np.uint8)) == ()


def test_uncertain_texts_and_symbols_are_dropped():
    class Mixed:
        def read(self, pixels: np.ndarray) -> tuple[Text, ...]:
            box = (0.0, 0.0, 0.1, 0.1)
            return (Text(box, "Wi-Fi", 0.95), Text(box, "Wi-F", 0.9499), Text(box, "+", 1.0), Text(box, "5", 1.0))

    assert [text.text for text in Confident(Mixed(), 0.95).read(page())] == ["Wi-Fi", "5"]


@pytest.mark.parametrize(("text", "stray"), [("×", True), ("···", True), ("", True), ("M", False), ("零", False)])
def test_a_text_without_letter_and_digit_is_stray(text, stray):
    assert is_stray(text) is stray


def test_a_picture_is_read_once_for_equal_settings(tmp_path: Path):
    counting = Counting()
    first = CachedReader(counting, tmp_path, "one").read(page("a"))
    assert CachedReader(counting, tmp_path, "one").read(page("a")) == first
    assert counting.count == 1
    CachedReader(counting, tmp_path, "two").read(page("a"))
    CachedReader(counting, tmp_path, "one").read(page("b"))
    # The same bytes in another shape are another picture.
    CachedReader(counting, tmp_path, "one").read(page("a").reshape(320, 160, 3))
    assert counting.count == 4


@pytest.mark.parametrize("content", ["", '{"texts": [[', "{}", "[]", '{"texts": [[1, 2]]}', '{"texts": 7}', "7"])
def test_a_damaged_file_of_the_cache_is_read_again_and_replaced(tmp_path: Path, content: str):
    counting = Counting()
    cached = CachedReader(counting, tmp_path, "one")
    first = cached.read(page())
    (file,) = tmp_path.iterdir()
    file.write_text(content)
    assert cached.read(page()) == first
    assert cached.read(page()) == first
    assert counting.count == 2


def test_settings_that_change_no_text_share_the_cache(tmp_path: Path):
    def key(**settings: object) -> str:
        loaded = RapidOcrSettings(cache=str(tmp_path), **settings).load()
        return loaded.reader.settings

    assert key() == key(threads=1) == key(confidence=0.5)
    assert key() != key(longest_side=640)


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(UserError, match=r"rapidocr.*pip install 'vlm-agent\[screens\]'"):
        RapidOcrSettings().load()


@pytest.mark.parametrize("settings", [{"longest_side": 8}, {"confidence": 1.5}, {"threads": -1}, {"unknown": 1}])
def test_wrong_settings_are_refused(settings):
    with pytest.raises(ValidationError):
        RapidOcrSettings(**settings)
