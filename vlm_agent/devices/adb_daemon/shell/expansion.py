"""Expands the words of a shell line: variables, command substitutions, field splitting, file names."""

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from vlm_agent.devices.adb_daemon.files import Files
from vlm_agent.devices.adb_daemon.shell.words import CommandList, Substitution, Text, Variable, Word

MAX_EXPANDED = 1 << 20
"""The maximum number of characters that the variables, substitutions and file names of a line expand to."""

_BLANKS = " \t\n"
_SPLIT = re.compile(f"[{_BLANKS}]+").split
_MAGIC = "*?["


class ExpansionError(Exception):
    """A line expands to more than `MAX_EXPANDED` characters."""


@dataclass
class _Field:
    """`pattern`: the text, with quoted characters escaped for `fnmatch`. `has_magic`: it may stand for file names."""

    text: str = ""
    pattern: str = ""
    has_magic: bool = False

    def add(self, text: str, quoted: bool) -> None:
        self.text += text
        self.pattern += "".join(f"[{letter}]" if letter in _MAGIC else letter for letter in text) if quoted else text
        self.has_magic |= not quoted and any(letter in _MAGIC for letter in text)


@dataclass
class Expansion:
    """The variables of a line, and what is left of its limit. `capture`: the output of a command list."""

    files: Files
    capture: Callable[[CommandList], bytes]
    variables: dict[str, str] = field(default_factory=dict)
    left: int = MAX_EXPANDED

    def text(self, word: Word) -> str:
        """A word as one text, as in an assignment: without splitting and without file names."""
        return "".join(one.value if isinstance(one, Text) else self._value(one) for one in word)

    def fields(self, word: Word) -> list[str]:
        """The fields of a word: unquoted expansions are split at blanks, patterns replaced by the files they match."""
        fields: list[_Field] = []
        is_open = False  # whether the next text continues the last field
        for piece in word:
            text = piece.value if isinstance(piece, Text) else self._value(piece)
            parts = [text] if piece.quoted or isinstance(piece, Text) else [part for part in _SPLIT(text) if part]
            is_open &= not (parts != [text] and text[:1] in tuple(_BLANKS))
            for index, part in enumerate(parts):
                if not is_open or index > 0:
                    fields.append(_Field())
                fields[-1].add(part, piece.quoted)
                is_open = True
            is_open &= not (parts != [text] and text[-1:] in tuple(_BLANKS))
        return [name for one in fields for name in self._names(one)]

    def _value(self, piece: Variable | Substitution) -> str:
        if isinstance(piece, Variable):
            value = self.variables.get(piece.name, "")
        else:
            value = self.capture(piece.lines).replace(b"\0", b"").decode(errors="replace").rstrip("\n")
        self._spend(len(value))
        return value

    def _spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise ExpansionError

    def _names(self, one: _Field) -> list[str]:
        """The files that a pattern matches, or the text itself."""
        if not one.has_magic:
            return [one.text]
        found = [""]
        for part, pattern in zip(one.text.split("/"), one.pattern.split("/"), strict=True):
            found = [f"{folder}{name}/" for folder in found for name in self._matching(folder, part, pattern)]
        names = [name[:-1] for name in found if self.files.about(name[:-1])[0]]
        self._spend(sum(map(len, names)))
        return names or [one.text]

    def _matching(self, folder: str, part: str, pattern: str) -> list[str]:
        """The names in `folder` that match one part of a path; a part without a pattern need not exist."""
        if part == pattern and not any(letter in _MAGIC for letter in part):
            return [part]
        names = fnmatch.filter(self.files.within(folder or "/"), pattern)
        return [name for name in names if name.startswith(".") == part.startswith(".")]
