"""A screen read from pixels: parts, their numbers, their description."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image, ImageDraw
from pydantic import ValidationError

from vlm_agent.drawing.shapes import font
from vlm_agent.episodes import Widget
from vlm_agent.errors import UserError
from vlm_agent.screens.describe import describe
from vlm_agent.screens.icons import MEANINGS
from vlm_agent.screens.seen import Meaning, Text
from vlm_agent.screens.understand import LoadedReaders, Readers, Seconds, crop, understand

GREY = np.full((200, 100, 3), 128, np.uint8)


@dataclass
class Fixed:
    """Returns what it is built with."""

    texts: tuple[Text, ...] = ()
    widgets: tuple[Widget, ...] = ()

    def read(self, pixels: np.ndarray) -> tuple[Text, ...]:
        return self.texts

    def detect(self, pixels: np.ndarray) -> tuple[Widget, ...]:
        return self.widgets

    @property
    def readers(self) -> LoadedReaders:
        return LoadedReaders(self, self)


SETTINGS = Fixed(
    texts=(
        Text((0.005, 0.05, 0.02, 0.2), "12:30"),
        Text((0.20, 0.15, 0.03, 0.3), "Network"),
        Text((0.30, 0.05, 0.03, 0.2), "Wi-Fi"),
        Text((0.335, 0.05, 0.02, 0.3), "Connected"),
    ),
    widgets=(
        Widget("status_bar", (0.0, 0.0, 0.03, 1.0)),
        Widget("button", (0.19, 0.02, 0.05, 0.08)),
        Widget("switch", (0.31, 0.8, 0.03, 0.15), on=True),
    ),
)


def test_a_screen_is_described_from_top_to_bottom():
    understood = understand(GREY, SETTINGS.readers)
    assert understood.size == (200, 100)
    assert describe(understood).split("\n") == [
        "0 status bar: 12:30",
        "",
        "1 button: Network",
        "2 switch on: Wi-Fi Connected",
    ]
    assert describe(understood, "zh").split("\n")[3] == "2 开关 开: Wi-Fi Connected"
    assert [element.text for element in understood.elements] == ["12:30", "Network", "Wi-Fi Connected"]


def test_a_screen_without_anything_is_empty():
    understood = understand(GREY, Fixed().readers)
    assert (understood.parts, understood.blocks, understood.elements, describe(understood)) == ((), (), (), "")


class Gear:
    """Takes every icon for a gear, and keeps the shapes of the crops."""

    def __init__(self, score: float = 0.9) -> None:
        self.score, self.shapes = score, []

    def read(self, crops: list[np.ndarray]) -> list[tuple[Meaning, ...]]:
        self.shapes += [crop.shape for crop in crops]
        return [(Meaning("settings", self.score),)] * len(crops)


ICONS = Fixed(
    texts=(Text((0.2, 0.15, 0.03, 0.3), "Network"),),
    widgets=(
        Widget("button", (0.19, 0.02, 0.05, 0.08)),
        Widget("button", (0.5, 0.1, 0.05, 0.1)),
        Widget("image", (0.6, 0.1, 0.3, 0.8)),
        Widget("switch", (0.5, 0.7, 0.05, 0.1), on=False),
    ),
)


def test_the_meaning_of_an_icon_without_a_text_is_read():
    gear = Gear()
    understood = understand(GREY, LoadedReaders(ICONS, ICONS, gear))
    assert gear.shapes == [(10, 10, 3)]
    assert "button settings" in describe(understood)
    assert f"按钮 {MEANINGS['settings']['zh']}" in describe(understood, "zh")
    assert [part.meaning for part in understood.parts if part.meaning] == ["settings"]


def test_an_unlikely_meaning_is_dropped():
    understood = understand(GREY, LoadedReaders(ICONS, ICONS, Gear(0.3), icon_score=0.4))
    assert not any(part.meaning for part in understood.parts)


@pytest.mark.parametrize(
    "box", [(0.0, 0.0, 0.0, 0.0), (1.0, 1.0, 0.0, 0.0), (0.999, 0.5, 0.001, 0.001), (-0.5, 1.5, 0.1, 0.1)]
)
def test_a_crop_has_at_least_one_pixel(box):
    assert min(crop(GREY, box).shape) >= 1


def test_a_crop_ends_at_the_edges_of_the_picture():
    assert crop(GREY, (-0.1, 0.5, 0.2, 0.9)).shape == (20, 50, 3)


def test_the_active_tab_is_selected():
    """Four names in a row, of which the second is blue."""
    image = Image.new("RGB", (400, 800), "white")
    draw, texts = ImageDraw.Draw(image), []
    for number, name in enumerate(("Home", "Search", "Library", "Me")):
        place = {"xy": (50 + 100 * number, 700), "text": name, "font": font(18), "anchor": "mt"}
        draw.text(**place, fill="#2050e0" if number == 1 else "#707070")
        left, top, right, bottom = draw.textbbox(**place)
        texts.append(Text((top / 800, left / 400, (bottom - top) / 800, (right - left) / 400), name))
    understood = understand(np.array(image), Fixed(tuple(texts)).readers)
    assert [part.text for part in understood.parts if part.selected] == ["Search"]
    assert "1 selected: Search" in describe(understood)


def test_every_part_is_in_one_block_and_numbered_in_their_order():
    pixels = np.full((400, 200, 3), 255, np.uint8)
    pixels[100:200, 10:190] = (220, 220, 240)
    texts = tuple(Text((y, 0.1, 0.02, 0.4), f"Line {y}") for y in (0.05, 0.3, 0.4, 0.7, 0.9))
    understood = understand(pixels, Fixed(texts).readers)
    assert [index for block in understood.blocks for index in block.parts] == list(range(5))
    assert [part.id for part in understood.parts] == list(range(5))


def test_seconds_of_each_stage_are_kept():
    seconds = Seconds()
    understand(GREY, SETTINGS.readers, seconds)
    assert list(seconds.stages) == ["text", "widgets", "matching", "icons", "blocks"]
    assert all(value >= 0 for value in seconds.stages.values())


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 5), (5, 5, 4), (5, 5, 1)])
def test_pixels_that_are_not_a_picture_are_refused(shape):
    with pytest.raises(UserError, match="a screen is uint8"):
        understand(np.zeros(shape, np.uint8), Fixed().readers)


def test_readers_are_chosen_by_name():
    assert Readers(text="none") == Readers(text={"name": "none"})
    assert Readers(text={"longest_side": 900}).text.longest_side == 900
    with pytest.raises(ValidationError, match="choose one of none, rapidocr"):
        Readers(text="tesseract")


def test_equal_readers_are_loaded_once():
    assert Readers(text="none").load() is Readers(text="none").load()


def test_settings_of_readers_import_no_model():
    code = "import sys, vlm_agent.screens.understand as u; u.Readers(); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"cv2", "onnxruntime", "rapidocr", "scipy", "torch"}.intersection(modules)


def test_a_missing_opencv_is_one_sentence(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("vlm_agent.screens.blocks")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("vlm_agent.screens.blocks")
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(UserError, match=r"needs cv2 \(import of cv2 halted.*\); .*pip install .*\[screens\]'"):
        understand(GREY, SETTINGS.readers)


@pytest.mark.parametrize("size", [(5, 5), (7, 300), (300, 7)])
def test_noise_of_a_few_pixels_shows_nothing(size):
    noise = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    assert understand(noise, Readers(text={"name": "none"})).parts == ()
