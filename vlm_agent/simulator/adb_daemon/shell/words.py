"""Parses shell lines as Android's shell (mksh) does, into lists, pipelines, commands, words and redirections.

    list      pipeline { ( ; | & | && | || | newline ) pipeline }
    pipeline  [ ! ] command { | command }
    command   { NAME=word } { word } | ( list ) | { list; }     each with redirections
    word      characters, '…', "…", \\x, $NAME, ${NAME}, $(list), `list`
    redirect  [digit] ( < | > | >> | >| | >& ) word | ( &> | &>> ) word

Parsing has no side effects: commands are looked up in a table (`session.py`), and no line reaches a shell of this
machine. A line with anything else (arithmetic, brace expansion, here-documents, loops, conditions, functions) is a
syntax error as a whole, so that no part of it runs with another meaning than on Android.
"""

import re
from dataclasses import dataclass, field
from typing import NoReturn

DEEPEST = 16
"""The maximum nesting of substitutions and groups."""

MAX_LINE = 128 << 10
"""The maximum number of characters of a line or script. As many bytes as Linux allows in an
argument of `sh -c`. The phone does nothing else while it parses, which takes microseconds a character."""

_RESERVED = (
    *("case", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "select", "then", "time"),
    *("until", "while", "[[", "]]"),
)

_SEPARATORS = ("&&", "||", ";;", ";", "|", "&", "(", ")", "\n")
_REDIRECTION = re.compile(r"([0-9]?)(&>>|&>|>>|>\||>&|<<|<&|<>|>|<)")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[?$!#*@0-9-]")
_BRACES = re.compile(r"\{[^{},]*,[^{}]*\}")


class LimitError(Exception):
    """A line needs more than the shell allows, and ends."""


class ShellSyntaxError(Exception):
    """A line that is not valid or uses what this shell does not offer."""


@dataclass(frozen=True)
class Text:
    value: str
    quoted: bool


@dataclass(frozen=True)
class Variable:
    name: str
    quoted: bool


@dataclass(frozen=True)
class Substitution:
    """The output of `lines` without its final line breaks."""

    lines: "CommandList"
    quoted: bool


Piece = Text | Variable | Substitution
Word = list[Piece]


@dataclass
class Redirection:
    """`descriptor`: 0 to 9, or `&` for both outputs. `operator`: one of < > >> >&."""

    descriptor: str
    operator: str
    target: Word


@dataclass
class SimpleCommand:
    assignments: list[tuple[str, Word]] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)


@dataclass
class Group:
    """`is_subshell`: in round brackets, whose assignments and `exit` end with it."""

    body: "CommandList"
    is_subshell: bool
    redirections: list[Redirection] = field(default_factory=list)


@dataclass
class Pipeline:
    """`after`: the separator before it, one of && || ;. `is_negated`: after `!`."""

    after: str
    is_negated: bool
    commands: list[SimpleCommand | Group]


CommandList = list[Pipeline]


def read_line(line: str) -> CommandList:
    """The pipelines of a line, in order. Raises ShellSyntaxError for a line that is not valid, and LimitError for one
    of more than `MAX_LINE` characters or `DEEPEST` levels."""
    if len(line) > MAX_LINE:
        raise LimitError("Argument list too long")
    return _Reader(line).all()


def _substitution(lines: CommandList, quoted: bool) -> Substitution:
    """`$(<FILE)` is `$(cat <FILE)`."""
    match lines:
        case [Pipeline(commands=[SimpleCommand([], [], [Redirection(operator="<")]) as command])]:
            command.words.append([Text("cat", False)])
    return Substitution(lines, quoted)


class _Reader:
    def __init__(self, line: str, depth: int = 0) -> None:
        self.line = line
        self.at = 0
        self.depth = depth

    def all(self) -> CommandList:
        pipelines = self._list()
        if self.at < len(self.line):
            self._unexpected()
        return pipelines

    def _unexpected(self) -> NoReturn:
        operator = next((one for one in _SEPARATORS if self.line.startswith(one, self.at)), self.line[self.at :][:1])
        raise ShellSyntaxError(f"unexpected {operator!r}" if operator else "unexpected end of the line")

    # Lists, pipelines and commands

    def _list(self) -> CommandList:
        """Pipelines up to a closing bracket or the end."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise LimitError("too deep")
        pipelines: CommandList = []
        after = ";"
        self._skip_blanks(newlines=True)
        while not self._closes():
            pipelines.append(self._pipeline(after))
            after = self._separator()
            if not after:
                break
            self._skip_blanks(newlines=True)
            if after != ";" and self._closes():
                self._unexpected()
        self.depth -= 1
        return pipelines

    def _closes(self) -> bool:
        """Whether the list ends here."""
        return self.at >= len(self.line) or self.line[self.at] == ")" or self._starts_word("}")

    def _separator(self) -> str:
        for operator in ("&&", "||"):
            if self._take(operator):
                return operator
        if self.line.startswith(";;", self.at):
            self._unexpected()
        return ";" if self._take(";") or self._take("&") or self._take("\n") else ""

    def _pipeline(self, after: str) -> Pipeline:
        is_negated = self._starts_word("!") and self._take("!")
        commands = [self._command()]
        while not self.line.startswith("||", self.at) and self._take("|"):
            self._skip_blanks(newlines=True)
            commands.append(self._command())
        return Pipeline(after, is_negated, commands)

    def _command(self) -> SimpleCommand | Group:
        self._skip_blanks()
        if self.line.startswith("((", self.at):
            raise ShellSyntaxError("(( is not supported by the simulated phone")
        for opening, closing in (("(", ")"), ("{", "}")):
            if self.line.startswith(opening, self.at) and (opening == "(" or self._starts_word("{")):
                self.at += 1
                group = Group(self._list(), opening == "(")
                if not group.body or not self._take(closing):
                    self._unexpected()
                self._redirections(group)
                return group
        command = self._simple()
        if not (command.words or command.assignments or command.redirections):
            self._unexpected()
        return command

    def _simple(self) -> SimpleCommand:
        command = SimpleCommand()
        while self._redirections(command):
            assignment = None if command.words else _ASSIGNMENT.match(self.line, self.at)
            if assignment is not None:
                self.at = assignment.end()
                command.assignments.append((assignment[1], self._word()))
                continue
            start = self.at
            word = self._word()
            if not command.words and self.line[start : self.at] in _RESERVED:
                raise ShellSyntaxError(f"{self.line[start : self.at]} is not supported by the simulated phone")
            command.words.append(word)
        if self.line.startswith("(", self.at):
            self._unexpected()
        return command

    def _redirections(self, command: SimpleCommand | Group) -> bool:
        """Reads redirections; returns whether the command continues with a word."""
        self._skip_blanks()
        while match := _REDIRECTION.match(self.line, self.at):
            self.at = match.end()
            self._skip_blanks()
            command.redirections.append(self._redirection(match[1], match[2]))
            self._skip_blanks()
        return self.at < len(self.line) and not self.line.startswith(_SEPARATORS, self.at)

    def _redirection(self, descriptor: str, operator: str) -> Redirection:
        if operator in ("<<", "<&", "<>") or (operator in ("&>", "&>>") and descriptor):
            raise ShellSyntaxError(f"{operator} is not supported by the simulated phone")
        start = self.at
        target = self._word()
        if not target:
            self._unexpected()
        if operator == ">&" and self.line[start : self.at] not in ("1", "2"):
            raise ShellSyntaxError(">& is only supported with 1 and 2 by the simulated phone")
        if operator.startswith("&"):
            return Redirection("&", operator[1:], target)
        return Redirection(descriptor or ("0" if operator == "<" else "1"), operator.removesuffix("|"), target)

    # Characters

    def _skip_blanks(self, newlines: bool = False) -> None:
        """Skips blanks, escaped line breaks and a comment."""
        blanks = " \t\n" if newlines else " \t"
        while self.at < len(self.line):
            if self.line[self.at] in blanks:
                self.at += 1
            elif self.line.startswith("\\\n", self.at):
                self.at += 2
            elif self.line[self.at] == "#":
                end = self.line.find("\n", self.at)
                self.at = len(self.line) if end < 0 else end
                if not newlines:
                    return
            else:
                return

    def _take(self, text: str) -> bool:
        """Skips `text`, after blanks, if it comes next."""
        self._skip_blanks()
        if not self.line.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def _starts_word(self, letter: str) -> bool:
        """Whether a word of this one letter comes next."""
        after = self.line[self.at + 1 : self.at + 2]
        return self.line.startswith(letter, self.at) and (not after or after in " \t\n;&|)")

    def _word(self) -> Word:
        """The pieces up to a blank or an operator; none without a word here."""
        pieces: Word = []
        plain = ""
        while self.at < len(self.line) and not self._ends_word():
            letter = self.line[self.at]
            self.at += 1
            if letter not in "'\"\\$`":
                plain += letter
                continue
            if plain:
                pieces.append(Text(plain, False))
                plain = ""
            if letter == "'":
                pieces.append(Text(self._until("'"), True))
            elif letter == '"':
                pieces += self._in_double_quotes()
            elif letter == "\\":
                pieces.append(self._escaped())
            else:
                pieces.append(self._substitution(letter, False))
        if plain:
            pieces.append(Text(plain, False))
        shape = "".join(one.value if isinstance(one, Text) and not one.quoted else "\0" for one in pieces)
        if _BRACES.search(shape):
            raise ShellSyntaxError("brace expansion is not supported by the simulated phone; quote the braces")
        return pieces

    def _ends_word(self) -> bool:
        return self.line[self.at] in " \t<>" or self.line.startswith(_SEPARATORS, self.at)

    def _until(self, mark: str) -> str:
        end = self.line.find(mark, self.at)
        if end < 0:
            raise ShellSyntaxError("no closing quote")
        start, self.at = self.at, end + 1
        return self.line[start:end]

    def _escaped(self) -> Text:
        """What comes after a backslash. An escaped line break disappears; a last backslash stands for itself."""
        letter = self.line[self.at : self.at + 1]
        self.at += 1
        return Text("", False) if letter == "\n" else Text(letter or "\\", True)

    def _in_double_quotes(self) -> Word:
        pieces: Word = [Text("", True)]
        plain = ""
        while (letter := self.line[self.at : self.at + 1]) != '"':
            if not letter:
                raise ShellSyntaxError("no closing quote")
            self.at += 1
            if letter == "\\" and self.line[self.at : self.at + 1] in tuple('$`"\\\n'):
                plain += self._escaped().value
            elif letter in "$`":
                pieces += [Text(plain, True), self._substitution(letter, True)]
                plain = ""
            else:
                plain += letter
        self.at += 1
        return [*pieces, Text(plain, True)]

    def _substitution(self, mark: str, quoted: bool) -> Piece:
        """What comes after `$` or a backtick."""
        if mark == "`":
            text = re.sub(r"\\([$`\\])", r"\1", self._backticks())
            return _substitution(_Reader(text, self.depth).all(), quoted)
        if self.line.startswith("((", self.at):
            raise ShellSyntaxError("$(( is not supported by the simulated phone")
        if not quoted and self.line[self.at : self.at + 1] in ("'", '"'):
            raise ShellSyntaxError("$ before a quote is not supported by the simulated phone")
        if self._take_exactly("("):
            lines = self._list()
            if not self.line.startswith(")", self.at):
                raise ShellSyntaxError("no closing bracket")
            self.at += 1
            return _substitution(lines, quoted)
        if self._take_exactly("{"):
            name = self._until("}")
            if not _NAME.fullmatch(name):
                raise ShellSyntaxError(f"${{{name}}} is not supported by the simulated phone")
            return Variable(name, quoted)
        match = _NAME.match(self.line, self.at)
        if match is None:
            return Text("$", quoted)
        self.at = match.end()
        return Variable(match[0], quoted)

    def _take_exactly(self, text: str) -> bool:
        if not self.line.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def _backticks(self) -> str:
        start = self.at
        while self.at < len(self.line):
            letter = self.line[self.at]
            self.at += 2 if letter == "\\" else 1
            if letter == "`":
                return self.line[start : self.at - 1]
        raise ShellSyntaxError("no closing quote")
