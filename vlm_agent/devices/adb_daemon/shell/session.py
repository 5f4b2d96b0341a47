"""The phone's shell: runs command lines from a table of commands and records every command.

Like a real shell, it also runs commands that are injected through wrong quoting, so that tests find them in the record.
"""

import fnmatch
from collections.abc import Callable, MutableSequence
from dataclasses import dataclass

from vlm_agent.devices.adb_daemon.shell.words import ShellSyntaxError, SimpleCommand, Word, read_line

NOT_FOUND, SYNTAX_ERROR = 127, 1

_NAMES_IN_ROOT = ("data", "dev", "sdcard", "system")
"""The file names for the expansion of unquoted patterns such as `*`; a shell on a phone starts in `/`."""

_DEEPEST = 16


@dataclass(frozen=True)
class Result:
    """The output and exit status of a command."""

    out: bytes = b""
    err: bytes = b""
    status: int = 0


STDOUT, STDERR = 1, 2


@dataclass(frozen=True)
class Transcript:
    """The output of a line and the exit status of its last command. `written`: (STDOUT or STDERR, bytes) in order."""

    written: tuple[tuple[int, bytes], ...]
    status: int

    @property
    def out(self) -> bytes:
        return b"".join(data for kind, data in self.written if kind == STDOUT)


Command = Callable[[list[str]], Result]


def output(text: str) -> Result:
    """A successful result with a line of standard output."""
    return Result(f"{text}\n".encode())


def failure(text: str, status: int = 1) -> Result:
    """A result with a line of standard error."""
    return Result(err=f"{text}\n".encode(), status=status)


class Shell:
    """`commands`: name → function of the arguments. The words of every command that runs are appended to `record`."""

    def __init__(self, commands: dict[str, Command], record: MutableSequence[tuple[str, ...]]) -> None:
        self._commands, self._record = commands, record

    def run(self, line: str, depth: int = 0) -> Transcript:
        """Runs all commands of a line. A syntax error is reported in the output, not raised.

        `depth`: the number of command substitutions around the line, at most `_DEEPEST`.
        """
        try:
            if depth > _DEEPEST:
                raise ShellSyntaxError("too deep")
            commands = read_line(line)
        except ShellSyntaxError as error:
            return Transcript(((STDERR, f"/system/bin/sh: syntax error: {error}\n".encode()),), SYNTAX_ERROR)
        parts, status = [], 0
        for index, command in enumerate(commands):
            if (command.after == "&&" and status != 0) or (command.after == "||" and status == 0):
                continue
            result = self._run_one(command, status, depth)
            status = result.status
            if index + 1 == len(commands) or commands[index + 1].after != "|":
                parts.append((STDOUT, result.out))
            parts.append((STDERR, result.err))
        return Transcript(tuple(part for part in parts if part[1]), status)

    def _run_one(self, command: SimpleCommand, status: int, depth: int) -> Result:
        words = [field for word in command.words for field in self._fields(word, status, depth)]
        files = [(operator, *self._fields(word, status, depth)) for operator, word in command.redirections]
        for file in files:
            self._record.append(file)
        if not words:
            return Result(status=status)
        self._record.append(tuple(words))
        run = self._commands.get(words[0])
        if run is None:
            return failure(f"/system/bin/sh: {words[0]}: inaccessible or not found", NOT_FOUND)
        result = run(words[1:])
        return Result(b"" if files else result.out, result.err, result.status)

    def _fields(self, word: Word, status: int, depth: int) -> list[str]:
        """The expansion of a word: one field if any part of it is quoted, otherwise any number of fields."""
        text, splits, is_quoted = "", False, False
        for piece in word:
            is_quoted |= piece.quoted
            if piece.kind == "text":
                text += piece.value
            else:
                splits |= not piece.quoted
                text += self._substituted(piece.kind, piece.value, status, depth)
        fields = text.split() if splits else [text]
        if is_quoted:
            return fields or [""]
        return [name for field in fields for name in fnmatch.filter(_NAMES_IN_ROOT, field) or [field]]

    def _substituted(self, kind: str, value: str, status: int, depth: int) -> str:
        if kind == "command":
            return self.run(value, depth + 1).out.decode(errors="replace").rstrip("\n")
        return {"?": str(status), "$": "1", "#": "0", "HOME": "/", "PATH": "/system/bin"}.get(value, "")
