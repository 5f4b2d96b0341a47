"""A screen read from pixels: parts, their numbers, their description."""

from dataclasses import dataclass

import numpy as np
import pytest
from pydantic import ValidationError

from vlm_agent.episodes import Widget
from vlm_agent.errors import UserError
from vlm_agent.screens.describe import describe
from vlm_agent.screens.seen import Text
from vlm_agent.screens.understand import LoadedReaders, Readers, Seconds, understand

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
        Text((0.10, 0.15, 0.03, 0.3), "Network"),
        Text((0.20, 0.05, 0.03, 0.2), "Wi-Fi"),
        Text((0.235, 0.05, 0.02, 0.3), "Connected"),
    ),
    widgets=(
        Widget("status_bar", (0.0, 0.0, 0.03, 1.0)),
        Widget("button", (0.09, 0.02, 0.05, 0.08)),
        Widget("switch", (0.21, 0.8, 0.03, 0.15), on=True),
    ),
)


def test_a_screen_is_described_from_top_to_bottom():
    understood = understand(GREY, SETTINGS.readers)
    assert understood.size == (200, 100)
    assert describe(understood).split("\n") == [
        "0 status bar: 12:30",
        "1 button: Network",
        "2 switch on: Wi-Fi Connected",
    ]
    assert describe(understood, "zh").split("\n")[2] == "2 开关 开: Wi-Fi Connected"
    assert [element.text for element in understood.elements] == ["12:30", "Network", "Wi-Fi Connected"]


def test_a_screen_without_anything_is_empty():
    understood = understand(GREY, Fixed().readers)
    assert (understood.parts, understood.blocks, understood.elements, describe(understood)) == ((), (), (), "")


def test_seconds_of_each_stage_are_kept():
    seconds = Seconds()
    understand(GREY, SETTINGS.readers, seconds)
    assert list(seconds.stages)[:3] == ["text", "widgets", "matching"]
    assert all(value >= 0 for value in seconds.stages.values())


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 5), (5, 5, 4), (5, 5, 1)])
def test_pixels_that_are_not_a_picture_are_refused(shape):
    with pytest.raises(UserError, match="RGB"):
        understand(np.zeros(shape, np.uint8), Fixed().readers)


def test_readers_are_chosen_by_name():
    assert Readers(text="none") == Readers(text={"name": "none"})
    assert Readers(text={"longest_side": 900}).text.longest_side == 900
    with pytest.raises(ValidationError, match="choose one of none, rapidocr"):
        Readers(text="tesseract")


def test_equal_readers_are_loaded_once():
    assert Readers(text="none").load() is Readers(text="none").load()
