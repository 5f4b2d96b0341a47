"""A server on loopback that offers a simulated phone over ADB."""

import re
import socket
import struct
import threading
from collections.abc import Callable

from vlm_agent.devices.errors import DeviceError
from vlm_agent.simulator.adb_daemon.connection import Connection, Service
from vlm_agent.simulator.adb_daemon.files import SyncService
from vlm_agent.simulator.adb_daemon.handset import Handset
from vlm_agent.simulator.adb_daemon.shell.commands import shell_of
from vlm_agent.simulator.adb_daemon.shell.fingers import EventService
from vlm_agent.simulator.adb_daemon.shell.session import STDERR, STDOUT, Transcript
from vlm_agent.simulator.adb_daemon.shell.tools.settings import PROPERTIES

LOOPBACK = "127.0.0.1"

EMULATOR_PORTS = range(5554, 5586)
"""Ports that adb's server scans for emulators; it would list a phone on one of them twice."""

_SHELL = re.compile(rb"(shell|exec)((?:,[^:]*)?):(.*)", re.DOTALL)

_EXIT = 3
"""The frame type of `shell,v2` for the exit status; the other types are STDOUT and STDERR."""


_NOT_INTERACTIVE = b"the simulated phone has no interactive shell; run one command: adb shell COMMAND\n"


class PhoneServer:
    """A context manager that serves the phone at `serial`. `port` 0 selects a free port.

    `is_authorised`: whether the phone's owner has allowed this computer to debug it. Raises DeviceError for a port that
    adb scans for emulators, OSError for a port in use.
    """

    def __init__(self, handset: Handset, port: int = 0, is_authorised: bool = True) -> None:
        if port in EMULATOR_PORTS:
            raise DeviceError(
                f"port {port} is one of {EMULATOR_PORTS.start} to {EMULATOR_PORTS.stop - 1}, which adb "
                "scans for emulators, so the phone would be listed twice; choose another"
            )
        self.handset = handset
        self.port = port
        self._is_authorised = is_authorised
        self._shell = shell_of(handset)
        self._connections: list[tuple[Connection, threading.Thread]] = []

    @property
    def serial(self) -> str:
        """The argument of `adb connect` and `adb -s`."""
        return f"{LOOPBACK}:{self.port}"

    def __enter__(self) -> "PhoneServer":
        self._listener = socket.create_server((LOOPBACK, self.port))
        self.port = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        return self

    def __exit__(self, *error: object) -> None:
        # Closing alone would leave the thread blocked in accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        for connection, thread in self._connections:
            connection.hang_up()
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                end, _ = self._listener.accept()
            except OSError:
                return  # closed by __exit__
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(end, _banner(), self._open_service, self._is_authorised)
            thread = threading.Thread(target=connection.serve, daemon=True)
            self._connections = [(connection, thread), *(pair for pair in self._connections if pair[1].is_alive())]
            thread.start()

    def _open_service(self, name: bytes) -> Service | None:
        if name == b"sync:":
            return SyncService(self.handset.files, self.handset.lock)
        match = _SHELL.fullmatch(name)
        if match is None:
            return None
        is_framed = match[1] == b"shell" and b"v2" in match[2].split(b",")
        # On a real phone the line is an argument of a process, and ends at the first zero byte.
        line = match[3].partition(b"\0")[0].decode(errors="replace")
        if line.split() == ["getevent", "-lt"]:
            return EventService(self.handset, (lambda data: _frame(STDOUT, data)) if is_framed else bytes)
        return _ShellService(lambda: self._run(line), is_framed)

    def _run(self, line: str) -> Transcript:
        if not line:
            return Transcript(((STDERR, _NOT_INTERACTIVE),), 1)
        with self.handset.lock:
            return self._shell.run(line)


def _banner() -> bytes:
    """The connection banner. It lists only the features that are implemented."""
    names = ("ro.product.name", "ro.product.model", "ro.product.device")
    return ("device::" + "".join(f"{name}={PROPERTIES[name]};" for name in names) + "features=shell_v2").encode()


class _ShellService(Service):
    """Runs a command when the stream opens. `is_framed`: stdout, stderr and exit status are separate, as in
    `shell,v2`. Data from the client is ignored, because no command reads its standard input."""

    finished = True

    def __init__(self, run: Callable[[], Transcript], is_framed: bool) -> None:
        self._run, self._is_framed = run, is_framed

    def start(self) -> bytes:
        result = self._run()
        if not self._is_framed:
            return b"".join(data for _, data in result.written)
        frames = [_frame(kind, data) for kind, data in result.written]
        return b"".join(frames) + _frame(_EXIT, bytes([result.status]))


def _frame(kind: int, data: bytes) -> bytes:
    return struct.pack("<BI", kind, len(data)) + data
