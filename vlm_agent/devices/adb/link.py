"""The connection to one phone through adb's server: queries are repeated if it breaks, actions run at most once.

When the connection breaks, the link waits for the phone, and reconnects if the phone is on the network.

A command is a sequence of words. Only `command_line` joins words into a line, and it quotes every word, because the
text to type comes from a model and is untrusted.
"""

import math
import re
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import adbutils

from vlm_agent.devices.adb.discovery import (
    CONNECT_SECONDS,
    CONNECTION_ERRORS,
    RETRY_SECONDS,
    check_state,
    choose,
    reason,
    start_server,
    states,
)
from vlm_agent.devices.errors import ActionInDoubtError, DeviceLostError, RefusedError

ANSWER_SECONDS = 30.0
"""The maximum time, in seconds, that a command may run without output."""

LONGEST_SECONDS = 60.0
"""The maximum time, in seconds, of a command that may hang, with or without output."""

CHARACTERS_PER_SECOND = 20
"""The slowest speed of Android's `input text`, in characters per second; it has no output while it types."""

Words = Sequence[str]

_NOTE = re.compile(r"\s*$|\[?warning\b(?!: activity not started)|cutils-trace:", re.IGNORECASE)
"""A line that Android's programs print whether or not they succeed."""


@dataclass(frozen=True)
class Success:
    """What a command prints if it succeeds: only lines that `lines` matches at their beginning, and `sign`.

    Android's programs report failures in words of their own, and often with status 0. Any other line is one.
    """

    sign: str = ""
    lines: re.Pattern[str] = re.compile("(?!)")

    def is_reported_by(self, output: str) -> bool:
        unexpected = (line for line in output.splitlines() if not _NOTE.match(line) and not self.lines.match(line))
        return self.sign in output and next(unexpected, None) is None


SILENT = Success()
"""`input` prints nothing."""

_REMEDIES = {"INJECT_EVENTS": '; where the developer options have "USB debugging (Security settings)", turn it on'}
"""Part of a failure's output → what the user can do about it."""

_STDOUT, _STDERR, _EXIT = 1, 2, 3

_T = TypeVar("_T")

TIMEOUTS = (TimeoutError, adbutils.AdbTimeout)


def command_line(*commands: Words) -> str:
    """A shell line that runs the commands in order until one fails.

    Raises ValueError for a zero byte, because Android would cut the line off there.
    """
    if any("\0" in word for words in commands for word in words):
        raise ValueError("a word of a command contains a zero byte")
    return " && ".join(" ".join(map(shlex.quote, words)) for words in commands)


class ShellResult(NamedTuple):
    """Standard output, standard error and exit status of a shell line."""

    out: bytes
    err: bytes
    status: int

    @property
    def text(self) -> str:
        """All output. Android's programs report failures in either stream."""
        return (self.err + b"\n" + self.out).decode(errors="replace")


class AdbLink:
    """`serial` as `adb devices` prints it, or host:port; None selects the only connected phone.

    `patience`: the maximum time in seconds to wait for a lost connection. `is_lost`: it was not restored so far. Raises
    a DeviceError that explains the problem.
    """

    def __init__(self, serial: str | None, patience: float) -> None:
        self._patience = patience
        self.is_lost = False
        self._client = start_server(ANSWER_SECONDS)
        self.serial, self._is_our_connection = choose(self._client, serial, patience)

    def close(self) -> None:
        """Disconnects from a phone that this link connected to."""
        if self._is_our_connection:
            with suppress(*CONNECTION_ERRORS):
                self._client.disconnect(self.serial)
            self._is_our_connection = False

    def ask(self, *commands: Words, may_hang: bool = False) -> bytes:
        """The output of commands without side effects, which are repeated if the connection breaks.

        Raises RefusedError if they fail, and with `may_hang` if they have no output for `ANSWER_SECONDS`, which
        otherwise counts as a broken connection, or take `LONGEST_SECONDS`; DeviceLostError if the connection is not
        restored.
        """
        return _output_of(command_line(*commands), self.query(*commands, may_hang=may_hang))

    def text(self, words: Words) -> str:
        """What `ask` returns, decoded; empty if the phone refuses the command."""
        try:
            return self.ask(words).decode(errors="replace")
        except RefusedError:
            return ""

    def query(self, *commands: Words, may_hang: bool = False) -> ShellResult:
        """Runs commands that may fail, as `ask` does; their status and all output."""
        line = command_line(*commands)

        def ask() -> ShellResult:
            try:
                return self._finish(self._transport(), line, LONGEST_SECONDS if may_hang else math.inf)
            except TIMEOUTS as error:
                if may_hang:
                    seconds = f"gave no output for {ANSWER_SECONDS:g} s, or did not end in {LONGEST_SECONDS:g} s"
                    raise RefusedError(f"`{_short(line)}` {seconds}") from error
                raise

        return self._repeated(ask)

    def do(self, *commands: Words, success: Success = SILENT) -> None:
        """Runs commands with side effects, which are sent at most once. `success`: what they print if they succeed.

        Raises ActionInDoubtError if the connection breaks after sending, RefusedError unless the commands succeed, and
        DeviceLostError if the connection was not restored and nothing was sent.
        """
        line = command_line(*commands)
        transport = self._repeated(self._transport)
        try:
            answer = self._finish(transport, line)
        except CONNECTION_ERRORS as error:
            what = f"the connection to {self.serial} was cut during `{_short(line)}` ({reason(error)})"
            if isinstance(error, TIMEOUTS):
                what = f"`{_short(line)}` on {self.serial} gave no output for {ANSWER_SECONDS:g} s or more"
            raise ActionInDoubtError(
                f"{what}; it is unknown whether the command took effect, and it is not repeated: look at the screen"
            ) from error
        _output_of(line, answer)
        if not success.is_reported_by(answer.text):
            raise _refusal(line, answer)

    @contextmanager
    def stream(self, *commands: Words) -> Iterator[Iterator[bytes]]:
        """The output of commands that run until the block ends, piece by piece as it is written.

        They run on a terminal, because Android's programs write line by line only there. The iterator raises
        DeviceLostError if the connection breaks or the commands end; when the block ends, it stops.
        """
        line = command_line(*commands)

        def start() -> adbutils.AdbConnection:
            connection = self._transport()
            with _closed_if_broken(connection):
                _request(connection, "shell,v2,pty", line)
            return connection

        connection = self._repeated(start)
        with connection.conn as end:
            end.settimeout(None)
            ended = threading.Event()
            try:
                yield self._pieces(connection, commands, ended)
            finally:
                ended.set()
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for the next piece

    def _pieces(
        self, connection: adbutils.AdbConnection, commands: tuple[Words, ...], ended: threading.Event
    ) -> Iterator[bytes]:
        cause = "it ended"
        try:
            while (frame := _read_frame(connection))[0] != _EXIT:
                if frame[0] in (_STDOUT, _STDERR):
                    yield frame[1]
        except CONNECTION_ERRORS as error:
            cause = reason(error)
        if not ended.is_set():
            raise DeviceLostError(
                f"`{command_line(*commands)}` on {self.serial} stopped ({cause}); check its connection"
            )

    def _transport(self) -> adbutils.AdbConnection:
        """A connection to adb's server whose next request goes to the phone."""
        connection = self._client.make_connection()
        with _closed_if_broken(connection):
            connection.send_command(f"host:transport:{self.serial}")
            connection.check_okay()
        return connection

    def _repeated(self, ask: Callable[[], _T]) -> _T:
        """The result of `ask`, which is called again as long as the connection breaks and is restored in time."""
        deadline = None
        while True:
            try:
                return ask()
            except CONNECTION_ERRORS as error:
                deadline = time.monotonic() + self._patience if deadline is None else deadline
                self.is_lost = True
                self._reconnect(deadline, error)
                self.is_lost = False

    def _finish(self, connection: adbutils.AdbConnection, line: str, longest: float = math.inf) -> ShellResult:
        """Sends the line and waits for its exit status, at most about `longest` seconds.

        Raises one of `CONNECTION_ERRORS` if the connection breaks before; it is then unknown whether the line ran.
        """
        latest = time.monotonic() + longest
        with connection.conn:
            _request(connection, "shell,v2", line)
            output = {_STDOUT: bytearray(), _STDERR: bytearray()}
            while True:
                stream, data = _read_frame(connection)
                if stream == _EXIT:
                    return ShellResult(bytes(output[_STDOUT]), bytes(output[_STDERR]), int.from_bytes(data, "little"))
                if stream in output:
                    output[stream] += data
                if time.monotonic() > latest:
                    raise TimeoutError(f"`{_short(line)}` did not end in {longest:g} s")

    def _reconnect(self, deadline: float, cause: Exception) -> None:
        """Returns when the phone is connected again. Raises DeviceLostError at the `deadline` (of `time.monotonic`)."""
        while True:
            try:
                if ":" in self.serial:
                    # Otherwise adb's server may keep using a dead connection.
                    self._client.disconnect(self.serial)
                    self._client.connect(self.serial, timeout=CONNECT_SECONDS)
                else:
                    time.sleep(RETRY_SECONDS)
                state = states(self._client).get(self.serial, "absent")
            except CONNECTION_ERRORS as error:
                state, cause = "absent", error
            if state == "unauthorized":
                check_state(self.serial, state)
            if time.monotonic() >= deadline:
                raise DeviceLostError(
                    f"the connection to {self.serial} was lost ({reason(cause)}) and not restored within "
                    f"{self._patience:g} s; check its cable or network. No action was in progress"
                ) from cause
            if state == "device":
                return
            time.sleep(RETRY_SECONDS)


@contextmanager
def _closed_if_broken(connection: adbutils.AdbConnection) -> Iterator[None]:
    try:
        yield
    except CONNECTION_ERRORS:
        connection.conn.close()
        raise


def _request(connection: adbutils.AdbConnection, service: str, line: str) -> None:
    """Sends the line to a service of the phone's shell, which accepts it."""
    request = f"{service}:{line}".encode()
    connection.conn.settimeout(ANSWER_SECONDS + len(request) / CHARACTERS_PER_SECOND)
    connection.conn.sendall(b"%04x" % len(request) + request)
    connection.check_okay()


def _read_frame(connection: adbutils.AdbConnection) -> tuple[int, bytes]:
    """(stream, data) of the next piece of output."""
    header = connection.read_exact(5)
    return header[0], connection.read_exact(int.from_bytes(header[1:], "little"))


def _output_of(line: str, answer: ShellResult) -> bytes:
    # Android's programs report some failures as a Java exception but exit with 0.
    if answer.status == 0 and b"Exception" not in answer.err:
        return answer.out
    raise _refusal(line, answer)


def _refusal(line: str, answer: ShellResult) -> RefusedError:
    output = "; ".join(filter(None, map(str.strip, answer.text.splitlines())))
    message = f"the phone failed at `{_short(line)}` with status {answer.status}: {output[:400] or 'no output'}"
    remedy = next((words for sign, words in _REMEDIES.items() if sign in output), "")
    return RefusedError(f"{message}{remedy}")


def _short(line: str) -> str:
    """The command without its arguments: a typed text, which may be a password, does not belong into messages."""
    return " ".join(line.split()[:2])
