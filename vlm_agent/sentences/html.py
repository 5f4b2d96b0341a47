"""A screen's elements as text similar to HTML, with the spellings of two published codes.

Auto-UI (section A.4), `element_texts`:

    <p id=0 class="text" alt="(0.0900, 0.0630, 0.1033, 0.1074)">Clock</p>
    <img id=1 class=ICON_GOOGLE alt="(0.2000, 0.0556, 0.2333, 0.0926)">G</p>

D-PoT (section 4 and appendix A.1), `screen_html`:

    <p id=0 class="text" alt="Clock">Clock</p>
    <img id=1 class=ICON_GOOGLE alt="G">G</p>

An icon closes with `</p>`. An id is the number of the element in the annotation, from 0. In Auto-UI's form `alt` is
(top, left, bottom, right) in screen fractions, an element that is neither TEXT nor an icon is left out, and its number
is not used again. D-PoT's form has every element, because an answer may choose any (`action_languages/
element_index.py`), and one line for each.
"""

import re
from collections.abc import Sequence

import numpy as np

from vlm_agent.episodes import Screen, UiElement
from vlm_agent.texts.lines import one_line

PHRASES = ("<p id=", "<img id=", ' class="text" alt="(', " class=", ' alt="(', ')">', "</p>")
"""The fixed texts of elements in Auto-UI's form, for a tokenizer trained from scratch."""

SCREEN_PHRASES = ("<p id=", "<img id=", ' class="text" alt="', " class=", ' alt="', '">', "</p>\n")
"""The same of D-PoT's form."""

_TEXT, _ICON = "TEXT", "ICON"
_CLOSING = str.maketrans({"<": "&lt;", ">": "&gt;", '"': "&quot;"})
_NO_CLASS = re.compile(r"\W")


def element_texts(elements: Sequence[UiElement]) -> list[str]:
    """The text of each element in Auto-UI's form, in the order of the annotation."""
    shown = [(number, one) for number, one in enumerate(elements) if _ICON in one.type or one.type == _TEXT]
    return [one_line(_tag(number, element.type, f"({_corners(element)})", element.text)) for number, element in shown]


def screen_html(screen: Screen) -> str:
    """The screen in D-PoT's form, a line for each element; empty without elements.

    The text of an element can close no tag: `<`, `>` and quotation marks are written as entities. Every other character
    is written as it is, white space as one space. A type is written with letters, digits and underscores alone.
    """
    return "".join(f"{_published_line(number, element)}\n" for number, element in enumerate(screen.elements or ()))


def _published_line(number: int, element: UiElement) -> str:
    text = one_line(element.text).translate(_CLOSING)
    return _tag(number, _NO_CLASS.sub("_", element.type), text, text)


def _tag(number: int, kind: str, alt: str, text: str) -> str:
    opening = f"<img id={number} class={kind}" if _ICON in kind else f'<p id={number} class="text"'
    return f'{opening} alt="{alt}">{text}</p>'


def _corners(element: UiElement) -> str:
    # The published code adds in the type of AITW's positions, float32: a corner on the edge of a decimal depends on it.
    y, x, height, width = np.asarray(element.box, np.float32)
    return ", ".join(f"{value:.4f}" for value in (y, x, y + height, x + width))
