"""Lines of text from pixels: RapidOCR, what is dropped, and the cache."""

import logging
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, ImageDraw
from pydantic import ValidationError

from vlm_agent.drawing.shapes import font
from vlm_agent.errors import UserError
from vlm_agent.screens.seen import Text
from vlm_agent.screens.text import (
    CachedReader,
    Confident,
    RapidOcrReader,
    RapidOcrSettings,
    is_stray,
    windows_of,
    without_repeats,
)


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


@pytest.mark.ocr
def test_each_line_of_a_tall_page_is_read_once(reader):
    """1,800 pixels are read in windows of 640, which overlap by 50."""
    lines = [f"Row number {number}" for number in range(44)]
    texts = Confident(reader, 0.0).read(page(*lines, size=(1800, 200)))
    assert [text.text.replace(" ", "") for text in texts] == [line.replace(" ", "") for line in lines]
    assert all(abs(text.box[0] * 1800 - (20 + 40 * number)) < 10 for number, text in enumerate(texts))


@pytest.mark.parametrize(
    "size", [(1, 1), (100, 100), (2400, 1080), (1080, 2400), (20000, 540), (540, 20000), (20000, 9)]
)
def test_windows_cover_the_picture_and_are_no_longer_than_a_screen(size):
    windows = windows_of(size, 1600)
    covered = np.zeros((-(-size[0] // 10), -(-size[1] // 10)), bool)
    for top, left, bottom, right in windows:
        assert 0 <= top < bottom <= size[0]
        assert 0 <= left < right <= size[1]
        assert max(bottom - top, right - left) <= max(1600, 2.5 * min(size))
        covered[top // 10 : -(-bottom // 10), left // 10 : -(-right // 10)] = True
    assert covered.all()
    assert (len(windows) == 1) == (max(size) < 20000)


def test_of_repeated_texts_the_largest_remains():
    whole = Text((0.5, 0.1, 0.02, 0.5), "Bluetooth", 0.97)
    cut = Text((0.5, 0.1, 0.01, 0.5), "Bluetooth", 0.99)
    other = Text((0.53, 0.1, 0.02, 0.5), "Bluetooth", 0.97)
    assert without_repeats([cut, other, whole, whole]) == (whole, other)


def test_uncertain_texts_and_symbols_are_dropped():
    class Mixed:
        def read(self, pixels: np.ndarray) -> tuple[Text, ...]:
            texts = (("Wi-Fi", 0.95), ("Wi-F", 0.9499), ("+", 1.0), ("5", 1.0))
            return tuple(Text((0.2 * row, 0.0, 0.1, 0.1), *text) for row, text in enumerate(texts))

    reader = Confident(Mixed(), 0.95)
    assert [text.text for text in reader.read(page())] == ["Wi-Fi", "5"]
    assert [text.text for text in reader.split(page())[1]] == ["Wi-F"]


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


@pytest.mark.parametrize("package", ["rapidocr", "onnxruntime", "cv2"])
def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch, package: str):
    monkeypatch.setattr("vlm_agent.screens.text.find_spec", lambda name: None if name == package else name)
    with pytest.raises(UserError, match=rf"needs {package}; .*pip install .*\[screens\]'"):
        RapidOcrSettings().load()


def test_a_package_that_cannot_be_imported_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    reader = RapidOcrReader(640)
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    with pytest.raises(UserError, match=r"cannot be imported: .*pip install .*\[screens\]'"):
        reader.read(page("a"))


@pytest.mark.parametrize("settings", [{"longest_side": 8}, {"confidence": 1.5}, {"threads": -1}, {"unknown": 1}])
def test_wrong_settings_are_refused(settings):
    with pytest.raises(ValidationError):
        RapidOcrSettings(**settings)


def test_an_unlikely_text_does_not_hide_a_likely_one_that_it_overlaps():
    junk, name = Text((0.0, 0.0, 0.5, 0.9), "xq1", 0.3), Text((0.1, 0.1, 0.1, 0.4), "Settings", 0.99)
    engine = SimpleNamespace(
        boxes=[np.array([(x, y), (x + w, y), (x + w, y + h), (x, y + h)]) * 200 for y, x, h, w in (junk.box, name.box)],
        txts=(junk.text, name.text),
        scores=(junk.confidence, name.confidence),
    )
    reader = RapidOcrReader(1600)
    reader._engine = lambda _: engine
    assert [text.text for text in Confident(reader, 0.95).read(np.zeros((200, 200, 3), np.uint8))] == ["Settings"]
