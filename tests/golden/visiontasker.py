"""Compares what is read from a screen here with the published output of VisionTasker for the same screen.

    python tests/golden/visiontasker.py SCREEN.png OUTPUT.json [--widgets DETECTOR] [--icons READER]

OUTPUT is the published program's JSON: nested blocks of elements with `class`, `sub_class`, `text_content` and
`location` in pixels. It is under the GPL: neither it nor any text in it is part of this repository, and what is known
of its errors is written here in our words, by the elements' ids. It is a reference to compare with, not the truth.

Prints each text that differs, and figures as JSON in the last line:

texts      published texts, and how many are read here: similar by 0.8 or more without spaces and punctuation, at their
           place. Names of icons' meanings and of elements without a text do not count. `in_images`: texts that the
           published program names an image by, each piece of them by itself.
boxes      published texts of one line and widgets whose box has a partner here: IoU 0.5 or more, or the centre inside
blocks     for each published block the best IoU of a block here, and whether its elements are in one block here
known      the published output's own errors, and what is read here instead

The exit status is 1 if fewer than 31 texts are read, 2 for a file that is no such output.
"""

import argparse
import difflib
import json
import re
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from vlm_agent.screens.seen import Box, Understood  # noqa: E402
from vlm_agent.screens.understand import Readers, understand  # noqa: E402

ENOUGH = 31
SIMILAR = 0.8
NEAR = 100
"""Pixels around an element in which its text may be: names of icons are under them."""

PREFIX = re.compile(r"^\w+[:：]\s*")
"""Words that the published program puts before a text: title, default text."""

MEANING = re.compile("[、或键]|^可能|^一个")
"""What only meanings of icons and elements without a text contain: lists of words, "or", "key", "maybe", "a"."""

KNOWN = {
    "c-29": "the page indicator of the grid is called a switch",
    "c-17": "the button that scans a code, beside the search field, is marked as selected",
    "c-32": "the selected tab of the upper row, the one with a line under it, is not marked",
    "c-15": "a picture is called a text field, and gets a text that is nowhere on the screen",
    "c-25": "the first tab of the upper row is called a title",
    "c-47": "one letter of the heading is misread",
}
"""Errors of the published output for its own example, by element."""


@dataclass(frozen=True)
class Element:
    id: str
    kind: str
    text: str
    is_named_by_text: bool
    location: tuple[int, int, int, int]
    """(top, left, bottom, right) in pixels."""

    @property
    def is_text(self) -> bool:
        return self.kind == "Text"


@dataclass(frozen=True)
class PublishedBlock:
    id: str
    location: tuple[int, int, int, int]
    elements: tuple[str, ...]


class OutputError(Exception):
    pass


def place(node: dict[str, Any]) -> tuple[int, int, int, int]:
    box = node["location"]
    return box["top"], box["left"], box["bottom"], box["right"]


def read_output(path: Path) -> tuple[list[Element], list[PublishedBlock]]:
    """(elements, outermost blocks). Raises OutputError for a file of another form."""
    try:
        nodes = [node for node in json.loads(path.read_text(encoding="utf-8")) if isinstance(node, dict)]
        blocks = [
            PublishedBlock(node["id"], place(node), tuple(one.id for one in elements_of(node)))
            for node in nodes
            if node["class"] == "Block"
        ]
        elements = [one for node in nodes for one in elements_of(node)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OutputError(f"{path} is no output of VisionTasker: {type(error).__name__}: {error}") from None
    if not elements:
        raise OutputError(f"{path} has no elements")
    return elements, blocks


def elements_of(node: dict[str, Any]) -> Iterator[Element]:
    if node["class"] == "Block":
        for child in node["children"]:
            yield from elements_of(child)
        return
    text = PREFIX.sub("", node["text_content"])
    yield Element(node["id"], node["sub_class"], text, not MEANING.search(text), place(node))


def plain(text: str) -> str:
    """Letters and digits alone, in one form."""
    return "".join(letter for letter in unicodedata.normalize("NFKC", text) if letter.isalnum()).lower()


def similarity(first: str, second: str) -> float:
    return difflib.SequenceMatcher(None, plain(first), plain(second), autojunk=False).ratio()


def in_pixels(box: Box, size: tuple[int, int]) -> tuple[float, float, float, float]:
    y, x, tall, wide = box
    return y * size[0], x * size[1], (y + tall) * size[0], (x + wide) * size[1]


def iou(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    tall = min(first[2], second[2]) - max(first[0], second[0])
    wide = min(first[3], second[3]) - max(first[1], second[1])
    shared = max(0.0, tall) * max(0.0, wide)
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (first, second))
    return shared / (areas - shared) if areas > shared else 0.0


def holds(box: tuple[float, ...], other: tuple[float, ...], slack: float = 0.0) -> bool:
    """Whether the centre of `other` lies in `box`."""
    y, x = (other[0] + other[2]) / 2, (other[1] + other[3]) / 2
    return box[0] - slack <= y <= box[2] + slack and box[1] - slack <= x <= box[3] + slack


def closest(text: str, location: tuple[int, ...], found: list[tuple[tuple[float, ...], str]]) -> tuple[float, str]:
    """(similarity, text) of the text or the neighbouring lines near `location` that come closest to `text`."""
    near = [(box, one) for box, one in found if holds(location, box, NEAR)]
    lines = [one for box, one in near if holds(location, box, 8)]
    candidates = [one for _, one in near] + ["".join(lines)]
    candidates += ["".join(lines[start : start + 2]) for start in range(len(lines) - 1)]
    return max(((similarity(text, one), one) for one in candidates), default=(0.0, ""))


def compare(understood: Understood, elements: list[Element], blocks: list[PublishedBlock]) -> dict[str, Any]:
    size = understood.size
    texts = [(in_pixels(text.box, size), text.text) for text in understood.texts]
    named = [one for one in elements if one.is_named_by_text]
    single = [one for one in named if one.kind != "image"]
    pieces = [(piece, one) for one in named if one.kind == "image" for piece in one.text.split()]
    missed = missing([(one.text, one) for one in single], texts)
    missed_pieces = missing(pieces, texts)
    parts = [in_pixels(part.box, size) for part in understood.parts]
    boxes = [box for box, _ in texts] + parts
    return {
        "texts": {"published": len(single), "read": len(single) - len(missed), "not_read": missed},
        "in_images": {"published": len(pieces), "read": len(pieces) - len(missed_pieces), "not_read": missed_pieces},
        "boxes": {
            name: overlaps([one.location for one in elements if one.is_text == is_text], boxes)
            for name, is_text in (("texts", True), ("widgets", False))
        },
        "blocks": [compare_block(block, elements, understood) for block in blocks],
        "found": {"texts": len(texts), "parts": len(parts), "blocks": len(understood.blocks)},
        "known": known(understood, elements),
    }


def missing(wanted: list[tuple[str, Element]], texts: list[tuple[tuple[float, ...], str]]) -> list[str]:
    """Ids of the elements whose text is not read, in order."""
    missed = []
    for text, element in wanted:
        score, best = closest(text, element.location, texts)
        if score < SIMILAR:
            print(f"{element.id}: published {text!r}, closest here {best!r} ({score:.2f})")
            missed.append(element.id)
    return missed


def overlaps(wanted: list[tuple[int, ...]], boxes: list[tuple[float, ...]]) -> dict[str, int]:
    return {
        "published": len(wanted),
        "iou_0.5": sum(any(iou(one, box) >= 0.5 for box in boxes) for one in wanted),
        "centre": sum(any(holds(one, box) and holds(box, one) for box in boxes) for one in wanted),
    }


def compare_block(block: PublishedBlock, elements: list[Element], understood: Understood) -> dict[str, Any]:
    """The block here that overlaps most, and into how many blocks here the elements fall."""
    size = understood.size
    here = [in_pixels(one.box, size) for one in understood.blocks]
    best = max(range(len(here)), key=lambda index: iou(block.location, here[index]), default=None)
    members = {
        min(inside, key=lambda index: (here[index][2] - here[index][0]) * (here[index][3] - here[index][1]))
        for one in elements
        if one.id in block.elements
        and (inside := [index for index, box in enumerate(here) if holds(box, one.location)])
    }
    return {
        "id": block.id,
        "iou": None if best is None else round(iou(block.location, here[best]), 2),
        "blocks_here": len(members),
        "title_here": "" if best is None else understood.blocks[best].title,
    }


def known(understood: Understood, elements: list[Element]) -> dict[str, dict[str, Any]]:
    """For each known error that OUTPUT has: what it is, and the part here with the largest overlap."""
    result = {}
    for one in elements:
        if one.id in KNOWN:
            boxes = [in_pixels(part.box, understood.size) for part in understood.parts]
            index = max(range(len(boxes)), key=lambda number: iou(one.location, boxes[number]), default=None)
            has_none = index is None or iou(one.location, boxes[index]) < 0.2
            part = None if has_none else understood.parts[index]
            here = None if part is None else {"kind": part.kind, "text": part.text, "selected": part.selected}
            result[one.id] = {"error": KNOWN[one.id], "here": here}
    return result


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("screen", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--widgets", default=Readers().widgets, help="default: %(default)s")
    parser.add_argument("--icons", default=Readers().icons, help="default: %(default)s")
    options = parser.parse_args(arguments)
    try:
        elements, blocks = read_output(options.output)
    except OutputError as error:
        print(error)
        return 2
    pixels = np.array(Image.open(options.screen).convert("RGB"))
    understood = understand(pixels, Readers(widgets=options.widgets, icons=options.icons))
    figures = compare(understood, elements, blocks)
    for name, part in figures.items():
        print(name, json.dumps(part, ensure_ascii=False))
    print(json.dumps(figures, ensure_ascii=False))
    return 0 if figures["texts"]["read"] >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
