"""The device's side of one connection from adb's server: the handshake and the multiplexed streams."""

import io
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from vlm_agent.simulator.adb_daemon.wire import (
    AUTH,
    AUTH_SIGNATURE,
    AUTH_TOKEN,
    CLSE,
    CNXN,
    MAX_PAYLOAD,
    OKAY,
    OPEN,
    TOKEN_BYTES,
    VERSION,
    WRTE,
    Packet,
    WireError,
    read_packet,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Service:
    """The device's end of a stream, by default one that sends nothing and ignores what it receives."""

    finished = False
    """Whether the stream ends once the data that the service has returned is sent."""

    def start(self) -> bytes:
        """The data to send first, when the stream opens."""
        return b""

    def take(self, data: bytes) -> bytes:
        """The response to `data` from the client."""
        return b""

    def attach(self, push: Callable[[bytes], None]) -> None:
        """Called once, when the stream is open. `push` sends data at any time; any thread may call it."""

    def close(self) -> None:
        """Called once, when the stream is closed."""


class _PromptReader(io.RawIOBase):
    """Reads a socket and acknowledges what it has read at once.

    A client that sends header and payload apart otherwise waits for the delayed acknowledgement of the header, 40 ms a
    packet, unless it disables Nagle's algorithm. Linux needs the option again after each read; other systems lack it.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        count = self._end.recv_into(buffer)
        if hasattr(socket, "TCP_QUICKACK"):
            self._end.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return count


class _Stream:
    """The state of one stream. It sends one packet at a time and waits for its acknowledgement, as the protocol
    requires."""

    def __init__(self, local: int, remote: int, service: Service) -> None:
        self.local, self.remote, self.service = local, remote, service
        self.waiting: deque[bytes] = deque()
        self.may_send = True

    def add(self, data: bytes, limit: int) -> None:
        self.waiting.extend(data[start : start + limit] for start in range(0, len(data), limit))


class Connection:
    """`open_service`: service name → service, or None if the phone does not offer it."""

    def __init__(
        self, end: socket.socket, banner: bytes, open_service: Callable[[bytes], Service | None], authorised: bool
    ) -> None:
        self._end, self._banner, self._open_service, self._authorised = end, banner, open_service, authorised
        self._streams: dict[int, _Stream] = {}
        self._limit = MAX_PAYLOAD
        self._numbers = 0
        self._outgoing = bytearray()
        self._lock = threading.RLock()

    def serve(self) -> None:
        """Handles packets until the connection ends. Never raises for a broken connection or an invalid packet."""
        with self._end, io.BufferedReader(_PromptReader(self._end)) as stream:
            try:
                while (packet := read_packet(stream)) is not None:
                    with self._lock:
                        self._handle(packet)
                        self._flush()
            except (OSError, WireError):
                return  # broken connections are normal for a phone
            finally:
                with self._lock:
                    for open_stream in tuple(self._streams.values()):
                        self._forget(open_stream)

    def hang_up(self) -> None:
        """Closes the connection; may be called from any thread."""
        try:
            self._end.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended already

    def _handle(self, packet: Packet) -> None:
        if packet.command == CNXN:
            self._greet(packet)
        elif not self._authorised:
            if packet.command == AUTH and packet.arg0 == AUTH_SIGNATURE:
                self._ask_for_key()
        elif packet.command == OPEN:
            self._open(packet.arg0, packet.payload)
        elif packet.arg1 in self._streams:
            self._continue(self._streams[packet.arg1], packet)

    def _greet(self, packet: Packet) -> None:
        if not self._authorised:
            self._ask_for_key()
            return
        self._limit = max(1, min(MAX_PAYLOAD, packet.arg1))
        self._send(CNXN, VERSION, MAX_PAYLOAD, self._banner)

    def _ask_for_key(self) -> None:
        """Answers like a phone that has not authorised the computer: it rejects every signature.

        After the last signature the client sends its public key, and the phone waits for its owner to accept it.
        """
        self._send(AUTH, AUTH_TOKEN, 0, os.urandom(TOKEN_BYTES))

    def _open(self, remote: int, name: bytes) -> None:
        service = self._open_service(name.rstrip(b"\0"))
        if service is None:
            self._send(CLSE, 0, remote)
            return
        self._numbers += 1
        stream = self._streams[self._numbers] = _Stream(self._numbers, remote, service)
        self._send(OKAY, stream.local, remote)
        stream.add(service.start(), self._limit)
        self._pump(stream)
        service.attach(lambda data: self._push(stream, data))

    def _push(self, stream: _Stream, data: bytes) -> None:
        with self._lock:
            if stream.local not in self._streams:
                return
            stream.add(data, self._limit)
            try:
                self._pump(stream)
                self._flush()
            except OSError:
                return  # `serve` ends

    def _forget(self, stream: _Stream) -> None:
        del self._streams[stream.local]
        stream.service.close()

    def _continue(self, stream: _Stream, packet: Packet) -> None:
        if packet.command == CLSE:
            self._forget(stream)
            self._send(CLSE, stream.local, stream.remote)
            return
        if packet.command == OKAY:
            stream.may_send = True
        elif packet.command == WRTE:
            stream.add(stream.service.take(packet.payload), self._limit)
            self._send(OKAY, stream.local, stream.remote)
        self._pump(stream)

    def _pump(self, stream: _Stream) -> None:
        if not stream.may_send:
            return
        if stream.waiting:
            stream.may_send = False
            self._send(WRTE, stream.local, stream.remote, stream.waiting.popleft())
        elif stream.service.finished:
            self._forget(stream)
            self._send(CLSE, stream.local, stream.remote)

    def _send(self, command: bytes, arg0: int, arg1: int, payload: bytes = b"") -> None:
        """Adds a packet to the next write; the answers to one packet are one write."""
        self._outgoing += Packet(command, arg0, arg1, payload).encoded()

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, bytearray()
        if outgoing:
            self._end.sendall(outgoing)
