"""A screen's elements as text similar to HTML (Auto-UI, section A.4), with the spellings of its published code.

    <p id=0 class="text" alt="(0.0900, 0.0630, 0.1033, 0.1074)">Clock</p>
    <img id=1 class=ICON_GOOGLE alt="(0.2000, 0.0556, 0.2333, 0.0926)">G</p>

`alt` is (top, left, bottom, right) in screen fractions, and an icon closes with `</p>`. An element that is neither
TEXT nor an icon is left out, and its number is not used again.
"""

from collections.abc import Sequence

from vlm_agent.episodes import UiElement

PHRASES = ("<p id=", "<img id=", ' class="text" alt="(', " class=", ' alt="(', ')">', "</p>")
"""The fixed texts of elements, for a tokenizer trained from scratch."""


def one_line(text: str) -> str:
    """`text` without white space at its ends, every other run of white space as one space.

    A lone surrogate, which a model may write and no request can hold, becomes a question mark.
    """
    return " ".join(text.encode("utf-8", "replace").decode("utf-8").split())


def element_texts(elements: Sequence[UiElement]) -> list[str]:
    """The text of each element, in the order of the annotation."""
    return [one_line(text) for number, element in enumerate(elements) if (text := _html(number, element))]


def _html(number: int, element: UiElement) -> str:
    y, x, height, width = element.box
    box = ", ".join(f"{value:.4f}" for value in (y, x, y + height, x + width))
    if element.type == "TEXT":
        return f'<p id={number} class="text" alt="({box})">{element.text}</p>'
    if "ICON" in element.type:
        return f'<img id={number} class={element.type} alt="({box})">{element.text}</p>'
    return ""
