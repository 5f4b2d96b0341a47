"""The connection to one phone through adb's server: asking as often as it takes, acting at most once.

When the connection is cut, the phone is waited for, and a phone on the network is connected to again.
"""

import subprocess
import time
from typing import NamedTuple

import adbutils

from vlm_agent.devices.adb_choice import (
    CONNECT_SECONDS,
    CUT,
    RETRY_SECONDS,
    check_state,
    choose,
    reason,
    started_server,
    states,
)
from vlm_agent.devices.adb_words import Words, command_line
from vlm_agent.devices.errors import ActionInDoubtError, DeviceLostError, RefusedError

ANSWER_SECONDS = 30.0
"""How long the phone may say nothing while a command runs."""

TYPED_A_SECOND = 20
"""So many characters Android's `input text` types at the least, and says nothing meanwhile."""

_STDOUT, _STDERR, _EXIT = 1, 2, 3


class Answer(NamedTuple):
    out: bytes
    err: bytes
    status: int


class AdbLink:
    """`serial` as `adb devices` prints it, or host:port to connect to; None takes the only phone there is.

    `patience` is for how many seconds a phone that went away is waited for. Raises a DeviceError that says what is
    wrong.
    """

    def __init__(self, serial: str | None, patience: float):
        self._patience = patience
        self._client = started_server(ANSWER_SECONDS)
        self.serial, self._is_our_connection = choose(self._client, serial, patience)

    def close(self) -> None:
        """Leaves adb's list of phones as it was found."""
        if self._is_our_connection:
            self._client.disconnect(self.serial)
            self._is_our_connection = False

    def ask(self, *commands: Words) -> bytes:
        """What commands print that change nothing: asked again after a cut.

        Raises RefusedError when they fail, DeviceLostError when the phone stays away.
        """
        line = command_line(*commands)
        deadline = None
        while True:
            try:
                answer = self._finish(self._transport(), line)
                break
            except CUT as error:
                deadline = time.monotonic() + self._patience if deadline is None else deadline
                self._reconnect(deadline, error)
        return _checked(line, answer)

    def do(self, *commands: Words) -> bytes:
        """What commands print that change something: handed to the phone once or not at all.

        Raises ActionInDoubtError when the connection is cut with the command on its way; RefusedError when it fails;
        DeviceLostError when the phone stayed away and nothing was sent.
        """
        line = command_line(*commands)
        transport = self._patient_transport()
        try:
            answer = self._finish(transport, line)
        except CUT as error:
            raise ActionInDoubtError(
                f"the connection to {self.serial} was cut during `{_short(line)}` ({reason(error)}); it is not known "
                "whether the phone has done it, and it is not done again: look at the screen"
            ) from error
        return _checked(line, answer)

    def _transport(self) -> adbutils.AdbConnection:
        """A connection on which the next request goes to the phone."""
        connection = self._client.make_connection()
        try:
            connection.send_command(f"host:transport:{self.serial}")
            connection.check_okay()
        except CUT:
            connection.conn.close()
            raise
        return connection

    def _patient_transport(self) -> adbutils.AdbConnection:
        deadline = None
        while True:
            try:
                return self._transport()
            except CUT as error:
                deadline = time.monotonic() + self._patience if deadline is None else deadline
                self._reconnect(deadline, error)

    def _finish(self, connection: adbutils.AdbConnection, line: str) -> Answer:
        """Sends the line and waits for the exit status, without which it may or may not have run."""
        with connection.conn as end:
            request = f"shell,v2:{line}".encode()
            end.settimeout(ANSWER_SECONDS + len(request) / TYPED_A_SECOND)
            end.sendall(b"%04x" % len(request) + request)
            connection.check_okay()
            written = {_STDOUT: bytearray(), _STDERR: bytearray()}
            while True:
                header = connection.read_exact(5)
                data = connection.read_exact(int.from_bytes(header[1:], "little"))
                if header[0] == _EXIT:
                    return Answer(bytes(written[_STDOUT]), bytes(written[_STDERR]), int.from_bytes(data, "little"))
                if header[0] in written:
                    written[header[0]] += data

    def _reconnect(self, deadline: float, cause: Exception) -> None:
        """Returns when the phone is there again. Raises DeviceLostError at the deadline (of the monotonic clock)."""
        while True:
            try:
                if ":" in self.serial:
                    # adb's server may not have noticed yet that its connection is dead, and would use it on.
                    self._client.disconnect(self.serial)
                    self._client.connect(self.serial, timeout=CONNECT_SECONDS)
                else:
                    time.sleep(RETRY_SECONDS)
                state = states(self._client).get(self.serial, "absent")
            except (*CUT, subprocess.SubprocessError) as error:
                state, cause = "absent", error
            if state == "unauthorized":
                check_state(self.serial, state)
            if time.monotonic() >= deadline:
                raise DeviceLostError(
                    f"{self.serial} went away ({reason(cause)}) and was not there again within {self._patience:g} s; "
                    "look at its cable or network. No action was under way"
                ) from cause
            if state == "device":
                return
            time.sleep(RETRY_SECONDS)


def _checked(line: str, answer: Answer) -> bytes:
    # Android's `input` reports some failures as a Java exception and yet exits with 0.
    if answer.status == 0 and b"Exception" not in answer.err:
        return answer.out
    said = (answer.err + answer.out).decode(errors="replace").strip()
    raise RefusedError(f"the phone failed at `{_short(line)}` with status {answer.status}: {said[:400]}")


def _short(line: str) -> str:
    return line if len(line) <= 80 else line[:77] + "…"
