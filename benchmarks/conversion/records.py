"""Records of real screens, as AITW would hold them.

Five steps an episode, every screen with the annotations of a real one. TensorFlow writes GZIP records with zlib at its
default level, which inflates slower than what `write_episodes` packs fast, so the files are packed again with zlib.
"""

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from isal import igzip
from PIL import Image

from vlm_agent.datasets.sources.aitw import write_episodes
from vlm_agent.episodes import Action, Episode, Step, UiElement

STEPS = 5

_ZLIB_LEVEL = 6
_GZIP = 31  # wbits
_CHUNK = 1 << 20
_ACTIONS = (
    Action.tap(0.25, 0.75),
    Action.swipe((0.8, 0.5), (0.2, 0.5)),
    Action.type_text("pizza near me"),
    Action.press("enter"),
    Action.complete(),
)


@dataclass(frozen=True)
class RecordSet:
    """Files to make: `size` is (width, height), or None for every screen at its own; `screens` are those of a file."""

    name: str
    size: tuple[int, int] | None
    files: int
    screens: int

    def paths(self, folder: Path) -> list[Path]:
        return [folder / self.name / f"general-{number:05}-of-{self.files:05}" for number in range(self.files)]


def write_sets(sets: Sequence[RecordSet], shared: Path, folder: Path) -> dict[str, float]:
    """Writes the files of all sets below `folder` and returns each set's inflated bytes a screen."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        sizes = {each.name: pool.map(partial(_write, each, shared, folder), range(each.files)) for each in sets}
        return {each.name: sum(sizes[each.name]) / (each.files * each.screens) for each in sets}


def write_large_file(path: Path, shared: Path, inflated_bytes: int) -> int:
    """Writes one file of screens of 720×1440 that inflates to a little more than that; returns the screens in it."""
    size = (720, 1440)
    episodes = inflated_bytes // (STEPS * size[0] * size[1] * 3) + 1
    write_episodes(path, _episodes(shared, size, "large", episodes))
    return episodes * STEPS


def _write(records: RecordSet, shared: Path, folder: Path, number: int) -> int:
    """Writes one file of a set and returns its inflated bytes."""
    path = records.paths(folder)[number]
    path.parent.mkdir(exist_ok=True)
    packed_fast = path.with_name(f"{path.name}.fast")
    write_episodes(packed_fast, _episodes(shared, records.size, f"{number}", records.screens // STEPS))
    inflated = _pack_again(packed_fast, path)
    packed_fast.unlink()
    return inflated


def _pack_again(source: Path, target: Path) -> int:
    deflate = zlib.compressobj(_ZLIB_LEVEL, zlib.DEFLATED, _GZIP)
    inflated = 0
    with igzip.open(source, "rb") as stream, target.open("wb") as file:
        while chunk := stream.read(_CHUNK):
            inflated += len(chunk)
            file.write(deflate.compress(chunk))
        file.write(deflate.flush())
    return inflated


def _episodes(shared: Path, size: tuple[int, int] | None, prefix: str, count: int) -> Iterator[Episode]:
    screens = cycle(zip(_screens(shared, size), cycle(_annotations(shared))))
    for number in range(count):
        shown = zip(islice(screens, STEPS), _ACTIONS, strict=True)
        steps = tuple(Step(pixels, action, elements, "app/.Main") for (pixels, elements), action in shown)
        yield Episode(f"{prefix}-{number}", "general", "find a pizza near me", steps, "pixel_4", 30)


@cache
def _screens(shared: Path, size: tuple[int, int] | None) -> list[np.ndarray]:
    """Screens of both folders by turns, which mixes the flat ones with the photographs."""
    screens, annotated = (
        sorted((shared / "data" / name).glob(pattern))
        for name, pattern in (("screens", "*.png"), ("annotated_screens", "*.jpg"))
    )
    shortest = min(len(screens), len(annotated))
    paths = [path for pair in zip(screens, annotated, strict=False) for path in pair]
    paths += screens[shortest:] + annotated[shortest:]
    return [_pixels(path, size) for path in paths]


def _pixels(path: Path, size: tuple[int, int] | None) -> np.ndarray:
    with Image.open(path) as image:
        screen = image.convert("RGB")
    return np.array(screen if size is None else screen.resize(size, Image.Resampling.LANCZOS))


@cache
def _annotations(shared: Path) -> list[tuple[UiElement, ...]]:
    paths = sorted((shared / "data" / "annotated_screens").glob("*.json"))
    return [tuple(map(_element, json.loads(path.read_text())["elements"])) for path in paths]


def _element(found: dict) -> UiElement:
    left, top, right, bottom = found["bounds_ltrb"]
    text = found["text"] if found["text"] is not None else ""
    return UiElement((top, left, bottom - top, right - left), text, "TEXT" if text else "ICON")
