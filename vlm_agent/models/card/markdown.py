"""Markdown of texts that may hold anything: a goal, a path or a name ends no table, code block or comment."""

import html
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_SPECIAL = re.compile(r"([\\`*_\[\]|#])")
_OPTION = re.compile(r"(--[\w.-]+=)?((?:/|~).*)", re.DOTALL)


def plain(text: object) -> str:
    """One line that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", html.escape(_printable(" ".join(str(text).split())), quote=False))


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *([plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str) -> str:
    """An indented block, which no line of the text can end."""
    return textwrap.indent(_printable(text), "    ", lambda line: True)


def _printable(text: str) -> str:
    """With `?` for control characters, which a terminal may execute."""
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)


def portable(value: Any) -> Any:
    """A text, or the texts of a list or mapping, with each absolute path (also of `--key=/path`) as its last name: what
    is published names no folder of this machine."""
    if isinstance(value, Mapping):
        return {key: portable(of_key) for key, of_key in value.items()}
    if isinstance(value, list | tuple):
        return [portable(item) for item in value]
    found = _OPTION.fullmatch(value) if isinstance(value, str) else None
    return value if found is None else f"{found[1] or ''}{Path(found[2]).name}"
