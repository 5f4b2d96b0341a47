"""Screens with their truth, by part: drawn ones that no training draws, web pages, and annotated real ones."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from shipped_weights.screens.collages import widget_collage
from shipped_weights.screens.samples import SIZES, SampleSettings, phone_screen
from vlm_agent.devices.browser.chromium import find_chromium
from vlm_agent.devices.browser.phone import BrowserPhone
from vlm_agent.episodes import Action, Widget
from vlm_agent.screens.seen import Box
from vlm_agent.simulator.drawing.canvas import Canvas


@dataclass(frozen=True)
class Shown:
    """One screen. `texts`: (box, text) of each line; boxes are (y, x, height, width) in fractions.

    `touch_areas`: whether boxes are the areas that react to touches rather than what is drawn in them.
    """

    name: str
    pixels: np.ndarray
    widgets: tuple[Widget, ...]
    texts: tuple[tuple[Box, str], ...]
    touch_areas: bool = False


def drawn(part: str, count: int, sizes: tuple[tuple[int, int], ...] = SIZES) -> Iterator[Callable[[], Shown]]:
    """Collages or pages of simulated phones. Training draws from seeds that are numbers, so none of these."""
    for number in range(count):
        yield lambda number=number: _drawn(part, number, sizes)


def _drawn(part: str, number: int, sizes: tuple[tuple[int, int], ...]) -> Shown:
    rng = random.Random(f"held-out {part} {number}")
    size = rng.choice(sizes)
    canvas: Canvas = widget_collage(rng, size) if part == "collages" else phone_screen(rng, size, SampleSettings())
    texts = tuple((element.box, element.text) for element in canvas.elements() if element.type == "TEXT")
    return Shown(f"{part} {number}", np.array(canvas.image), canvas.widgets(), texts)


class BrowserScreens:
    """Pages of the browser phone after random taps and swipes; Chromium starts at the first of them, for `stack`."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._phone: BrowserPhone | None = None

    def shown(self, number: int) -> Shown:
        if self._phone is None:
            self._phone = self._stack.enter_context(BrowserPhone())
        phone, rng = self._phone, random.Random(f"held-out browser {number}")
        phone.reset((None, "shop", "settings")[number % 3], number)
        for _ in range(rng.randint(0, 4)):
            elements = phone.elements()
            if rng.random() < 0.4 or not elements:
                phone.perform(Action.swipe((0.75, 0.5), (0.4, 0.5)))
            else:
                phone.perform(Action.tap(*rng.choice(elements).centre_yx))
        pixels = phone.screenshot()
        texts = tuple((element.box, element.text) for element in phone.elements())
        return Shown(f"browser {number}", pixels, phone.widgets(), texts)


def browser(count: int, stack: ExitStack) -> Iterator[Callable[[], Shown]]:
    """Raises NoBrowserError where Chromium or Playwright is missing."""
    find_chromium()
    screens = BrowserScreens(stack)
    for number in range(count):
        yield lambda number=number: screens.shown(number)


CLASSES = {
    "Switch": "switch",
    "ToggleButton": "switch",
    "CheckBox": "check_box",
    "RadioButton": "radio_group",
    "EditText": "edit_text",
    "AutoCompleteTextView": "edit_text",
    "Spinner": "spinner",
    "SeekBar": "seek_bar",
    "RatingBar": "rating_bar",
    "ImageButton": "button",
    "Button": "button",
    "ImageView": "image",
}
"""End of an Android class → kind; the first that fits. All others count as `other`."""


def annotated(folder: Path) -> Iterator[Callable[[], Shown]]:
    for path in sorted(folder.glob("*.json")):
        yield lambda path=path: _annotated(path)


def _annotated(path: Path) -> Shown:
    elements = json.loads(path.read_text(encoding="utf-8"))["elements"]
    pixels = np.array(Image.open(path.with_suffix(".jpg")).convert("RGB"))
    texts, widgets = [], []
    for element in elements:
        left, top, right, bottom = element["bounds_ltrb"]
        box = (top, left, bottom - top, right - left)
        if (element["text"] or "").strip():
            texts.append((box, element["text"].strip()))
        else:
            ending = element["class_"].rpartition(".")[2]
            kind = next((kind for name, kind in CLASSES.items() if ending.endswith(name)), "other")
            widgets.append(Widget(kind, box, element["checked"] if element["checkable"] else None))
    return Shown(path.stem, pixels, tuple(widgets), tuple(texts), touch_areas=True)


def ink_box(pixels: np.ndarray, box: Box, contrast: int = 12) -> tuple[float, float, float, float]:
    """The smallest box, as `box`, around what differs from the commonest colour at the border of `box`."""
    height, width = pixels.shape[:2]
    top, left = round(box[0] * height), round(box[1] * width)
    area = pixels[top : round((box[0] + box[2]) * height), left : round((box[1] + box[3]) * width)].astype(int)
    if 0 in area.shape:
        return (box[0], box[1], 0.0, 0.0)
    border = np.concatenate([area[0], area[-1], area[:, 0], area[:, -1]])
    colours, counts = np.unique(border, axis=0, return_counts=True)
    is_ink = np.abs(area - colours[counts.argmax()]).max(-1) > contrast
    if not is_ink.any():
        return (box[0], box[1], 0.0, 0.0)
    rows, columns = np.nonzero(is_ink.any(1))[0], np.nonzero(is_ink.any(0))[0]
    tall, wide = rows[-1] + 1 - rows[0], columns[-1] + 1 - columns[0]
    return ((top + rows[0]) / height, (left + columns[0]) / width, tall / height, wide / width)
