"""The phone's shell: runs command lines from a table of commands and records every command.

Like a real shell, it also runs commands that are injected through wrong quoting, so that tests find them in the record.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from vlm_agent.simulator.adb_daemon.files import MAX_BYTES, Files
from vlm_agent.simulator.adb_daemon.shell.expansion import Budget, Expansion
from vlm_agent.simulator.adb_daemon.shell.words import (
    DEEPEST,
    MAX_LINE,
    CommandList,
    Group,
    LimitError,
    Pipeline,
    Redirection,
    ShellSyntaxError,
    SimpleCommand,
    read_line,
)

NOT_FOUND, SYNTAX_ERROR, TOO_LONG = 127, 1, 126

STDOUT, STDERR = 1, 2

_FOLDERS_OF_TOOLS = ("/system/bin/", "/bin/")

_DEVICES = {"/dev/null": None, "/dev/tty": STDOUT, "/dev/stdout": STDOUT, "/dev/stderr": STDERR}
"""What is written to these paths goes to a stream of the line, or nowhere."""

_LONGEST_NUMBER = 10

_VARIABLES = {
    "$": "1",
    "#": "0",
    "?": "0",
    "ANDROID_DATA": "/data",
    "ANDROID_ROOT": "/system",
    "EXTERNAL_STORAGE": "/sdcard",
    "HOME": "/",
    "IFS": " \t\n",
    "PATH": "/system/bin",
    "PWD": "/",
    "USER": "shell",
}


@dataclass(frozen=True)
class Result:
    """The output and exit status of a command."""

    out: bytes = b""
    err: bytes = b""
    status: int = 0


@dataclass(frozen=True)
class Transcript:
    """The output of a line and the exit status of its last command. `written`: (STDOUT or STDERR, bytes) in order."""

    written: tuple[tuple[int, bytes], ...]
    status: int

    @property
    def out(self) -> bytes:
        return b"".join(data for kind, data in self.written if kind == STDOUT)


@dataclass(frozen=True)
class Call:
    """A command that runs. `words`: its arguments. `stdin`: the output of the command before it in a pipe, or the
    content of a file; None without either."""

    words: list[str]
    stdin: bytes | None = None


Command = Callable[[Call], Result]


def output(text: str) -> Result:
    """A successful result with a line of standard output."""
    return Result(f"{text}\n".encode())


def failure(text: str, status: int = 1) -> Result:
    """A result with a line of standard error."""
    return Result(err=f"{text}\n".encode(), status=status)


class ToolError(Exception):
    """Ends a command with a line of standard error and an exit status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


RecordCommand = Callable[[tuple[str, ...]], object]
"""Called with the words of each command that runs."""


class Shell:
    """`commands`: name → command. `record` is called with the words of every command that runs. `reasons`: name of a
    program that the phone lacks → why, for its error."""

    def __init__(
        self, commands: dict[str, Command], record: RecordCommand, files: Files, reasons: Mapping[str, str]
    ) -> None:
        self._commands, self._record, self._files, self._reasons = commands, record, files, reasons

    def run(self, line: str) -> Transcript:
        """Runs all commands of a line. A syntax error is reported in the output, not raised."""
        written: list[tuple[int, bytes]] = []
        streams = {kind: _limited(kind, written) for kind in (STDOUT, STDERR)}
        run = _Run(self._commands, self._record, self._files, self._reasons)
        try:
            status = run.all(read_line(line), _Streams(streams))
        except ShellSyntaxError as error:
            streams[STDERR](f"/system/bin/sh: syntax error: {error}\n".encode())
            status = SYNTAX_ERROR
        except LimitError as error:
            streams[STDERR](f"/system/bin/sh: {error}\n".encode())
            status = TOO_LONG
        except _OutputTooLongError:
            written.append((STDERR, b"/system/bin/sh: the output is too long for the simulated phone\n"))
            status = 1
        return Transcript(tuple(written), status)


Stream = Callable[[bytes], None]


def _script(data: bytes) -> str:
    """The text of a script, without zero bytes, which a shell skips. Raises OSError for one that is longer than a line
    may be."""
    if len(data) > MAX_LINE:
        raise OSError("File too large")
    return data.replace(b"\0", b"").decode(errors="replace")


class _OutputTooLongError(Exception):
    """A command prints more than `MAX_BYTES`."""


def _limited(kind: int, written: list[tuple[int, bytes]]) -> Stream:
    """A stream that appends to `written`. Raises _OutputTooLongError beyond `MAX_BYTES`."""
    left = MAX_BYTES

    def write(data: bytes) -> None:
        nonlocal left
        left -= len(data)
        if left < 0:
            raise _OutputTooLongError
        if data:
            written.append((kind, data))

    return write


@dataclass(frozen=True)
class _Streams:
    """Where a command writes (STDOUT and STDERR) and what it reads."""

    to: dict[int, Stream]
    stdin: bytes | None = None


class _Run:
    """The state of a line that runs: variables, status, and whether `exit` has ended it."""

    def __init__(
        self, commands: dict[str, Command], record: RecordCommand, files: Files, reasons: Mapping[str, str]
    ) -> None:
        self._commands, self._record, self._files, self._reasons = commands, record, files, reasons
        self._budget = Budget()
        self._expansion = Expansion(files, self._captured, self._budget, dict(_VARIABLES))
        self._has_ended = False
        self._depth = 0
        self._here: _Streams
        self._substituted = 0
        self._builtins: dict[str, Callable[[Call, _Streams], int]] = {
            "command": self._command_v,
            "exec": self._exec,
            "exit": self._exit,
            "export": self._export,
            "sh": self._sh,
            "which": self._which,
        }

    def all(self, pipelines: CommandList, streams: _Streams) -> int:
        """Runs a list and returns the status of its last command. Raises LimitError for a list nested too deeply."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise LimitError("too deep")
        status = 0
        for pipeline in pipelines:
            if self._has_ended:
                break
            if (pipeline.after == "&&" and status != 0) or (pipeline.after == "||" and status == 0):
                continue
            status = self._pipeline(pipeline, streams)
            self._expansion.variables["?"] = str(status)
        self._depth -= 1
        return status

    def _pipeline(self, pipeline: Pipeline, streams: _Streams) -> int:
        *first, last = pipeline.commands
        stdin = streams.stdin
        for command in first:
            written: list[tuple[int, bytes]] = []
            piped = _Streams({**streams.to, STDOUT: _limited(STDOUT, written)}, stdin)
            self._isolated(partial(self._command, command, piped))
            stdin = b"".join(data for _, data in written)
        status = self._command(last, _Streams(streams.to, stdin))
        return int(status == 0) if pipeline.is_negated else status

    def _isolated(self, run: Callable[[], int]) -> int:
        """Runs a subshell: its assignments and its `exit` end with it."""
        before, ended = dict(self._expansion.variables), self._has_ended
        status = run()
        self._expansion.variables, self._has_ended = before, ended
        return status

    def _captured(self, pipelines: CommandList) -> bytes:
        """The output of a command substitution within the command that runs now."""
        written: list[tuple[int, bytes]] = []
        here = self._here
        streams = replace(here, to={**here.to, STDOUT: _limited(STDOUT, written)})
        self._substituted = self._isolated(lambda: self.all(pipelines, streams))
        self._here = here
        return b"".join(data for _, data in written)

    def _command(self, command: SimpleCommand | Group, streams: _Streams) -> int:
        try:
            redirected = self._redirected(command.redirections, streams)
            if isinstance(command, SimpleCommand):
                return self._simple(command, redirected)
            if command.is_subshell:
                return self._isolated(lambda: self.all(command.body, redirected))
            return self.all(command.body, redirected)
        except OSError as error:  # a file of a redirection that cannot be opened or is full
            streams.to[STDERR](f"/system/bin/sh: {error}\n".encode())
            return 1

    def _simple(self, command: SimpleCommand, streams: _Streams) -> int:
        self._budget.spend()
        self._here, self._substituted = streams, 0
        words = [field for word in command.words for field in self._expansion.fields(word)]
        values = {name: self._expansion.text(word) for name, word in command.assignments}
        if values or words:
            self._record((*(f"{name}={value}" for name, value in values.items()), *words))
        if not words:
            self._expansion.variables |= values
            return self._substituted
        return self._call(words, streams)

    def _call(self, words: list[str], streams: _Streams) -> int:
        name = words[0]
        for folder in _FOLDERS_OF_TOOLS:
            name = name.removeprefix(folder) or name
        call = Call(words[1:], streams.stdin)
        if name in self._builtins:
            return self._builtins[name](call, streams)
        run = self._commands.get(name)
        if run is None:
            reason = f": {self._reasons[name]}" if name in self._reasons else ""
            result = failure(f"/system/bin/sh: {words[0]}: inaccessible or not found{reason}", NOT_FOUND)
        else:
            try:
                result = run(call)
            except ToolError as error:
                result = failure(str(error), error.status)
            except OSError as error:  # a file of the phone that it cannot read or write
                result = failure(f"{name}: {error}")
        streams.to[STDOUT](result.out)
        streams.to[STDERR](result.err)
        return result.status

    # Commands that change or need the shell

    def _exit(self, call: Call, streams: _Streams) -> int:
        self._has_ended = True
        word = call.words[0] if call.words else self._expansion.variables["?"]
        is_number = word.isascii() and word.isdecimal() and len(word) < _LONGEST_NUMBER
        return int(word) % 256 if is_number else self._refused("exit", f"{word}: bad number", streams)

    def _exec(self, call: Call, streams: _Streams) -> int:
        """Runs a command in place of the shell. Without a command it would redirect the rest of the line."""
        if not call.words:
            return self._refused("exec", "only with a command on the simulated phone", streams)
        status = self._call(call.words, streams)
        self._has_ended = True
        return status

    def _export(self, call: Call, streams: _Streams) -> int:
        """Every variable is exported already, and no command reads one."""
        for word in call.words:
            name, mark, value = word.partition("=")
            if not name.isidentifier():
                return self._refused("export", f"{word}: is not an identifier", streams)
            if mark:
                self._expansion.variables[name] = value
        return 0

    def _sh(self, call: Call, streams: _Streams) -> int:
        """`sh -c LINE`, `sh FILE`, or `sh` of its standard input."""
        match call.words:
            case ["-c", line, *_]:
                text = line
            case [path] if not path.startswith("-"):
                text = _script(self._files.read(path))
            case [] if call.stdin is not None:
                text = _script(call.stdin)
            case _:
                return self._refused("sh", "only sh -c LINE and sh FILE on the simulated phone", streams)
        try:
            pipelines = read_line(text)
        except ShellSyntaxError as error:
            return self._refused("sh", f"syntax error: {error}", streams)
        return self._isolated(lambda: self.all(pipelines, streams))

    def _which(self, call: Call, streams: _Streams) -> int:
        found = [name for name in call.words if name in self._commands or name in self._builtins]
        streams.to[STDOUT]("".join(f"/system/bin/{name}\n" for name in found).encode())
        return int(len(found) < max(1, len(call.words)))

    def _command_v(self, call: Call, streams: _Streams) -> int:
        """`command -v NAME …` and `command NAME …`."""
        if call.words[:1] == ["-v"]:
            return self._which(Call(call.words[1:]), streams)
        if not call.words or call.words[0].startswith("-"):
            return self._refused("command", "only with -v or a command on the simulated phone", streams)
        return self._call(call.words, streams)

    def _refused(self, name: str, reason: str, streams: _Streams) -> int:
        streams.to[STDERR](f"/system/bin/sh: {name}: {reason}\n".encode())
        return 1

    # Redirections

    def _redirected(self, redirections: list[Redirection], streams: _Streams) -> _Streams:
        """The streams of a command with redirections. Raises OSError for a file that cannot be opened."""
        self._here = streams
        for one in redirections:
            target = self._expansion.text(one.target)
            self._record((one.descriptor.strip("01") + one.operator, target))
            if one.operator == "<":
                streams = replace(streams, stdin=self._files.read(target))
            else:
                outputs = (STDOUT, STDERR) if one.descriptor == "&" else (int(one.descriptor),)
                stream = streams.to[int(target)] if one.operator == ">&" else self._file(target, one.operator, streams)
                streams = replace(streams, to={**streams.to, **dict.fromkeys(outputs, stream)})
        return streams

    def _file(self, path: str, operator: str, streams: _Streams) -> Stream:
        if path in _DEVICES:
            stream = _DEVICES[path]
            return (lambda data: None) if stream is None else streams.to[stream]
        if operator == ">" or not self._files.is_file(path):
            self._files.write(path, b"")
        return lambda data: self._files.write(path, self._files.read(path) + data)
