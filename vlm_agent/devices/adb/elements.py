"""Elements of a phone's screen, from its accessibility service (`uiautomator dump`).

The XML contains text of apps and is untrusted. It is read as a flat sequence of tags, so entities are not expanded and
nesting has no effect.
"""

import re
from html.parser import HTMLParser

from vlm_agent.devices.adb.link import Words
from vlm_agent.episodes import UiElement
from vlm_agent.texts.secrets import names_secret

_FILE = "/data/local/tmp/vlm_agent_window.xml"

COMMANDS: tuple[Words, ...] = (("rm", "-f", _FILE), ("uiautomator", "dump", _FILE), ("cat", _FILE), ("rm", "-f", _FILE))
"""`uiautomator dump` prints only to a terminal, so the commands write the dump to a file and print the file.

A dump that fails may exit with 0, and a stopped one may leave its file, so that of an earlier screen is removed first.
"""

LONGEST_TEXT, MAX_ELEMENTS = 1000, 2000

_BOUNDS = re.compile(r"\[(-?\d{1,6}),(-?\d{1,6})\]\[(-?\d{1,6}),(-?\d{1,6})\]")


def read_elements(dump: str, size: tuple[int, int]) -> tuple[UiElement, ...]:
    """The nodes on the screen with a text or a description, and password fields; at most `MAX_ELEMENTS`.

    `size` is (height, width) in pixels; boxes of the result are in screen fractions. All elements have type TEXT,
    because the dump does not distinguish icons from text.
    """
    elements = (_element(node, size) for node in _NodeParser(dump).nodes)
    return tuple(element for element in elements if element is not None)[:MAX_ELEMENTS]


def read_field(dump: str) -> tuple[str, str | None] | None:
    """(name, content) of the text field with the focus, None if the dump has none. The content of a password field is
    None, whatever the dump has."""
    for node in _NodeParser(dump).nodes:
        if node.get("focused") == "true" and (node.get("class") or "").endswith(("EditText", "AutoCompleteTextView")):
            name = (node.get("content-desc") or node.get("hint") or "").strip()[:LONGEST_TEXT]
            if node.get("password") == "true":
                return _password_field(name), None
            text = (node.get("text") or "")[:LONGEST_TEXT]
            return name, "" if text.strip()[:LONGEST_TEXT] == (node.get("hint") or "").strip()[:LONGEST_TEXT] else text
    return None


class _NodeParser(HTMLParser):
    """Collects the attributes of every <node> of `dump` in `nodes`."""

    def __init__(self, dump: str) -> None:
        super().__init__(convert_charrefs=True)
        self.nodes: list[dict[str, str | None]] = []
        self.feed(dump)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "node":
            self.nodes.append(dict(attrs))


def _element(node: dict[str, str | None], size: tuple[int, int]) -> UiElement | None:
    text = (node.get("text") or node.get("content-desc") or "").strip()[:LONGEST_TEXT]
    if node.get("password") == "true":
        text = _password_field(node.get("content-desc") or "")
    match = _BOUNDS.fullmatch(node.get("bounds") or "")
    if not text or match is None:
        return None
    left, top, right, bottom = map(int, match.groups())
    left, right = (min(max(0, x), size[1]) for x in (left, right))
    top, bottom = (min(max(0, y), size[0]) for y in (top, bottom))
    if left >= right or top >= bottom:
        return None
    return UiElement((top / size[0], left / size[1], (bottom - top) / size[0], (right - left) / size[1]), text)


def _password_field(description: str) -> str:
    """The name of a password field. Its text is never used: it may be the content."""
    return description.strip()[:LONGEST_TEXT] if names_secret(description) else "password"
