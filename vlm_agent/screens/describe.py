"""A screen in words, for a planner that reads text alone (VisionTasker, section 5.1).

    0 status bar: 12:30 87%

    1 title: Network
    2 button back
    3 switch on: Wi-Fi Connected
    4 button selected: Home

A line is one part: id, kind, meaning of its icon, state, and after the first colon its text. Blocks are separated by an
empty line. A text without a widget has no kind. Text of the screen is data: it cannot begin a line, and nothing after
the colon is ours.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import yaml

from vlm_agent.screens.icons import MEANINGS
from vlm_agent.screens.seen import Block, Part, Understood
from vlm_agent.texts.folding import normalized

Language = Literal["en", "zh"]

WORDS: Mapping[str, Mapping[str, str]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
"""Words by language: of the kinds of widgets, and of states."""

LONGEST = 200
"""Longer texts are cut, in characters."""


def describe(understood: Understood, language: Language = "en") -> str:
    """The screen in words; every part is described exactly once, under its id. Empty for a screen without parts."""
    blocks = (_block(understood, block, language) for block in understood.blocks)
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def describe_part(part: Part, language: Language = "en", is_title: bool = False) -> str:
    """One line: id, kind, meaning, state, text."""
    head = " ".join([str(part.id), *_head(part, language, is_title)])
    text = plain(part.text)
    return f"{head}: {text}" if text else head


def plain(text: str) -> str:
    """`text` on one line, without control and formatting characters (also those that turn the direction of writing)."""
    kept = (" " if unicodedata.category(each) in _NOT_SHOWN else each for each in normalized("NFC", text))
    line = re.sub(r"\s+", " ", "".join(kept)).strip()
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


_NOT_SHOWN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def _block(understood: Understood, block: Block, language: Language) -> list[str]:
    parts = [understood.parts[index] for index in block.parts]
    title = next((part.id for part in parts if part.kind == "text" and block.title == part.text != ""), None)
    return [describe_part(part, language, part.id == title) for part in parts]


def _head(part: Part, language: Language, is_title: bool) -> Iterator[str]:
    words = WORDS[language]
    if is_title:
        yield words["title"]
    elif part.kind != "text":
        yield words[part.kind]
    if part.meaning:  # its name where a reader has meanings of its own
        meaning = MEANINGS.get(part.meaning, {}).get(language, part.meaning.replace("_", " "))
        yield plain(meaning).replace(":", " ")
    if part.on is not None:
        yield words["on" if part.on else "off"]
    if part.selected:
        yield words["selected"]
