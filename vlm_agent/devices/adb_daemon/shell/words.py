"""Parses shell lines as a phone's shell does: quotes, escapes, operators, substitutions, redirections.

Parsing has no side effects: commands are looked up in a table (`session.py`), and no line reaches a shell of this
machine. Brace expansion, here-documents, functions and loops are not supported; their words are ordinary words.
"""

from dataclasses import dataclass, field

SEPARATORS = ("&&", "||", ";", "|", "&", "(", ")", "\n")
REDIRECTIONS = (">>", ">", "<")


class ShellSyntaxError(Exception):
    """An unclosed quote or bracket, or too deep nesting."""


@dataclass(frozen=True)
class Piece:
    """A part of a word. `kind` is `text`, `variable` (`value` is its name) or `command` (`value` is a command line, to
    be replaced by its output)."""

    kind: str
    value: str
    quoted: bool


Word = list[Piece]


@dataclass
class SimpleCommand:
    """One command. `after`: the separator before it, empty for the first command."""

    after: str
    words: list[Word] = field(default_factory=list)
    redirections: list[tuple[str, Word]] = field(default_factory=list)


def read_line(line: str) -> list[SimpleCommand]:
    """The commands of a line, in order. Raises ShellSyntaxError for a line that is not valid."""
    return _Reader(line).commands()


class _Reader:
    def __init__(self, line: str) -> None:
        self.line = line
        self.at = 0

    def commands(self) -> list[SimpleCommand]:
        commands, command, redirection = [], SimpleCommand(""), ""
        while self._skip_blanks():
            if operator := self._operator(SEPARATORS):
                commands.append(command)
                command = SimpleCommand(operator)
            elif operator := self._operator(REDIRECTIONS):
                redirection = operator
            elif redirection:
                command.redirections.append((redirection, self._word()))
                redirection = ""
            else:
                command.words.append(self._word())
        commands.append(command)
        return [command for command in commands if command.words or command.redirections]

    def _skip_blanks(self) -> bool:
        """Skips blanks and a comment; returns whether the line continues."""
        while self.line[self.at : self.at + 1] in (" ", "\t") and self.at < len(self.line):
            self.at += 1
        if self.line.startswith("#", self.at):
            end = self.line.find("\n", self.at)
            self.at = len(self.line) if end < 0 else end
        return self.at < len(self.line)

    def _operator(self, operators: tuple[str, ...]) -> str:
        match = next((operator for operator in operators if self.line.startswith(operator, self.at)), "")
        self.at += len(match)
        return match

    def _word(self) -> Word:
        pieces: Word = []
        while self.at < len(self.line):
            letter = self.line[self.at]
            if letter in " \t" or self.line.startswith(SEPARATORS + REDIRECTIONS, self.at):
                break
            self.at += 1
            if letter == "'":
                pieces.append(Piece("text", self._until("'"), True))
            elif letter == '"':
                pieces += self._in_double_quotes()
            elif letter == "\\":
                pieces.append(self._escaped())
            elif letter in "$`":
                pieces.append(self._substitution(letter, False))
            else:
                pieces.append(Piece("text", letter, False))
        return pieces

    def _until(self, mark: str) -> str:
        end = self.line.find(mark, self.at)
        if end < 0:
            raise ShellSyntaxError("no closing quote")
        start, self.at = self.at, end + 1
        return self.line[start:end]

    def _escaped(self) -> Piece:
        letter = self.line[self.at : self.at + 1]
        self.at += 1
        return Piece("text", "" if letter == "\n" else letter, True)

    def _in_double_quotes(self) -> Word:
        pieces: Word = [Piece("text", "", True)]
        while (letter := self.line[self.at : self.at + 1]) != '"':
            if not letter:
                raise ShellSyntaxError("no closing quote")
            self.at += 1
            if letter == "\\" and self.line[self.at : self.at + 1] in tuple('$`"\\\n'):
                pieces.append(self._escaped())
            elif letter in "$`":
                pieces.append(self._substitution(letter, True))
            else:
                pieces.append(Piece("text", letter, True))
        self.at += 1
        return pieces

    def _substitution(self, mark: str, quoted: bool) -> Piece:
        if mark == "`":
            return Piece("command", self._until("`"), quoted)
        if self.line.startswith("(", self.at):
            return Piece("command", self._in_brackets(), quoted)
        if self.line.startswith("{", self.at):
            self.at += 1
            return Piece("variable", self._until("}"), quoted)
        start = self.at
        if self.line[start : start + 1] in tuple("?$!#*@-0123456789"):
            self.at += 1
        else:
            while (letter := self.line[self.at : self.at + 1]) and (letter == "_" or letter.isalnum()):
                self.at += 1
        name = self.line[start : self.at]
        return Piece("variable", name, quoted) if name else Piece("text", "$", quoted)

    def _in_brackets(self) -> str:
        start, depth = self.at + 1, 0
        while self.at < len(self.line):
            letter = self.line[self.at]
            self.at += 1
            if letter == "'":
                self._until("'")
            depth += {"(": 1, ")": -1}.get(letter, 0)
            if depth == 0:
                return self.line[start : self.at - 1]
        raise ShellSyntaxError("no closing bracket")
