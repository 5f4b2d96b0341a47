"""Real screens (droidfiller, MIT) from pixels to words, with the widget detector `edges`."""

import json
import re
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vlm_agent.screens.describe import describe
from vlm_agent.screens.understand import Readers, understand

pytestmark = pytest.mark.ocr

READERS = Readers(text={"name": "rapidocr", "threads": 1}, widgets="edges", icons="none")


def _check(picture: Path) -> tuple[int, int]:
    """Reads one screen; (its listed texts that were read, its listed texts)."""
    with Image.open(picture) as image:
        pixels = np.array(image.convert("RGB"))
    understood = understand(pixels, READERS)
    for language in ("en", "zh"):
        lines = [line for line in describe(understood, language).split("\n") if line]
        assert [int(re.match(r"\d+", line)[0]) for line in lines] == list(range(len(understood.parts)))
    assert sorted(index for block in understood.blocks for index in block.parts) == list(range(len(understood.parts)))
    words = "".join(part.text for part in understood.parts).replace(" ", "")
    assert sorted(words) == sorted("".join(text.text for text in understood.texts).replace(" ", ""))
    read = [_letters(text.text) for text in understood.texts]
    listed = [element["text"] for element in json.loads(picture.with_suffix(".json").read_text())["elements"]]
    listed = [_letters(text) for text in listed if text]
    return sum(any(SequenceMatcher(None, text, one).ratio() >= 0.8 for one in read) for text in listed), len(listed)


def _letters(text: str) -> str:
    return "".join(text.lower().split())


def test_a_real_screen_becomes_words_that_have_each_part_once(shared):
    found, listed = _check(shared / "data" / "annotated_screens" / "My_Files_2022-11-02_100330860289.jpg")
    assert found >= 0.8 * listed > 0


@pytest.mark.slow
def test_four_fifths_of_the_texts_of_real_screens_are_read(shared):
    """84 % were measured; of the others about half are not drawn in their box, or are Korean."""
    counts = [_check(picture) for picture in sorted((shared / "data" / "annotated_screens").glob("*.jpg"))]
    found, listed = map(sum, zip(*counts, strict=True))
    assert len(counts) == 21
    assert found >= 0.8 * listed
