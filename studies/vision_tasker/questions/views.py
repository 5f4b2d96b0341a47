"""What a planner is shown of a screen: text of it, and the things that it can choose."""

import difflib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from vlm_agent.episodes import Screen, UiElement
from vlm_agent.screens.describe import describe
from vlm_agent.screens.seen import Understood, centre
from vlm_agent.sentences.html import screen_html

SIMILAR = 0.85
"""Texts are equal if their letters and digits are similar by this share."""

MEANINGS_OF = {
    "MAGNIFYING_GLASS": ("search",), "THREE_BARS": ("menu",), "THREE_DOTS": ("more",), "ARROW_BACKWARD": ("back",),
    "V_BACKWARD": ("back", "previous"), "SHOPPING_CART": ("cart",), "ENVELOPE": ("mail",),
    "LOCATION": ("location", "map", "pin"), "PERSON": ("account", "people", "contacts"),
    "TIME": ("clock", "history", "timer", "alarm"), "GALLERY": ("picture",), "TAKE_PHOTO": ("camera",),
    "V_FORWARD": ("forward", "next"), "V_DOWNWARD": ("down", "expand"), "V_UPWARD": ("up", "collapse"),
    "X": ("close",), "VIDEOCAM": ("video", "film"), "NOTIFICATIONS": ("notification",), "STAR": ("favourite",),
    "STAR_OUTLINE": ("favourite",), "HEART": ("like", "favourite", "health"), "PLUS": ("add",), "CHECK": ("done",),
    "ALARM": ("alarm", "clock"), "DOC": ("document", "note"), "NOTE": ("note", "document"), "BARS": ("statistics",),
    "BELL": ("notification",), "TROPHY": ("award",), "HEADPHONES": ("headphones", "music"), "BAG": ("bag", "store"),
}  # fmt: skip
"""Type of an annotation without ICON_ → meanings that are right; other types are the meaning of the same name."""


@dataclass(frozen=True)
class Thing:
    """One thing that a planner can choose. `label`: what it is called in the text."""

    label: str
    centre_yx: tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One line of a text about a screen: `head` is what stands before its text. Lines of a block have one number."""

    head: str
    text: str
    block: int


@dataclass(frozen=True)
class View:
    text: str
    things: tuple[Thing, ...]


def in_words(understood: Understood) -> View:
    things = [Thing(part.text or part.meaning or part.kind, centre(part.box)) for part in understood.parts]
    return View(describe(understood), tuple(things))


def in_html(elements: Sequence[UiElement]) -> View:
    return View(screen_html(Screen(None, tuple(elements))), tuple(Thing(one.name, one.centre_yx) for one in elements))


def lines_of(text: str) -> list[Line]:
    """The lines of a description or of HTML, whichever `text` is."""
    if text.startswith("<"):
        found = re.findall(r'<(?:p|img) id=\d+ class="?(\w+)"? alt="([^"]*)"', text)
        return [Line(kind.lower().replace("_", " "), words, 0) for kind, words in found]
    lines = []
    for block, group in enumerate(text.split("\n\n")):
        for line in group.splitlines():
            head, _, words = line.partition(": ")
            lines.append(Line(head.partition(" ")[2], words, block))
    return lines


def plain(text: str) -> str:
    """Letters and digits alone, in one form."""
    return "".join(letter for letter in unicodedata.normalize("NFKC", text).casefold() if letter.isalnum())


def is_same(first: str, second: str) -> bool:
    one, two = plain(first), plain(second)
    return one == two or difflib.SequenceMatcher(None, one, two, autojunk=False).ratio() >= SIMILAR


def has(text: str, wanted: str) -> bool:
    """Whether `wanted` is the text or whole words of it."""
    words, size = text.split(), len(wanted.split())
    return is_same(text, wanted) or any(
        is_same(" ".join(words[start : start + size]), wanted) for start in range(len(words) - size + 1)
    )


def meanings_of(icon: str) -> tuple[str, ...]:
    """Meanings that are right for an annotation's type, such as ICON_SETTINGS."""
    kind = icon.removeprefix("ICON_")
    return MEANINGS_OF.get(kind, (kind.lower(),))
