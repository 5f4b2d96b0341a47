"""Expands the words of a shell line: variables, command substitutions, field splitting, file names."""

import fnmatch
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from vlm_agent.simulator.adb_daemon.files import Files
from vlm_agent.simulator.adb_daemon.shell.words import CommandList, LimitError, Substitution, Text, Variable, Word

MAX_EXPANDED = 1 << 20
"""The maximum number of characters that the variables, substitutions and file names of a line expand to."""

MAX_SECONDS = 10.0
"""The longest that a line runs, because the phone does nothing else meanwhile. No program waits, not even `sleep`."""

MAX_PATTERN = 255
"""The maximum length of a pattern for one file name, as of a file name on Android."""

_BLANKS = " \t\n"
_SPLIT = re.compile(f"[{_BLANKS}]+").split
_MAGIC = "*?["


@dataclass
class Budget:
    """What a line may still expand to (characters), and when it must end (`time.monotonic`)."""

    left: int = field(default_factory=lambda: MAX_EXPANDED)
    end: float = field(default_factory=lambda: time.monotonic() + MAX_SECONDS)

    def spend(self, characters: int = 0) -> None:
        """Raises LimitError if the line has used up its characters or its time."""
        self.left -= characters
        if self.left < 0:
            raise LimitError("Argument list too long")
        if time.monotonic() > self.end:
            raise LimitError(f"the line runs for more than {MAX_SECONDS:g} seconds on the simulated phone")


@dataclass
class _Field:
    """`pieces`: (text, whether it is quoted)."""

    pieces: list[tuple[str, bool]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)

    @property
    def pattern(self) -> str:
        """The text, with quoted characters escaped for `fnmatch`."""
        return "".join(_escaped(text) if quoted else text for text, quoted in self.pieces)


def _escaped(text: str) -> str:
    return "".join(f"[{letter}]" if letter in _MAGIC else letter for letter in text)


def _has_magic(text: str) -> bool:
    return any(letter in text for letter in _MAGIC)


@dataclass
class Expansion:
    """The variables of a line. `capture`: the output of a command list."""

    files: Files
    capture: Callable[[CommandList], bytes]
    budget: Budget
    variables: dict[str, str] = field(default_factory=dict)

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
                fields[-1].pieces.append((part, piece.quoted))
                is_open = True
            is_open &= not (parts != [text] and text[-1:] in tuple(_BLANKS))
        return [name for one in fields for name in self._names(one)]

    def _value(self, piece: Variable | Substitution) -> str:
        if isinstance(piece, Variable):
            value = self.variables.get(piece.name, "")
        else:
            value = self.capture(piece.lines).replace(b"\0", b"").decode(errors="replace").rstrip("\n")
        self.budget.spend(len(value))
        return value

    def _names(self, one: _Field) -> list[str]:
        """The files that a pattern matches, or the text itself."""
        if not any(_has_magic(text) for text, quoted in one.pieces if not quoted):
            return [one.text]
        found = [""]
        for part, pattern in zip(one.text.split("/"), one.pattern.split("/"), strict=True):
            found = [f"{folder}{name}/" for folder in found for name in self._matching(folder, part, pattern)]
            self.budget.spend(sum(map(len, found)))
        names = [name[:-1] for name in found if self.files.about(name[:-1])[0]]
        return names or [one.text]

    def _matching(self, folder: str, part: str, pattern: str) -> list[str]:
        """The names in `folder` that match one part of a path; a part without a pattern need not exist."""
        if part == pattern and not _has_magic(part):
            return [part]
        if len(part) > MAX_PATTERN:
            raise LimitError("a pattern is too long for the simulated phone")
        names = fnmatch.filter(self.files.within(folder or "/"), pattern)
        return [name for name in names if name.startswith(".") == part.startswith(".")]
