"""The phone's answers to packets, including those that no client of adb sends."""

import io
import random
import socket
import threading

import pytest

from vlm_agent.errors import UserError
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer
from vlm_agent.simulator.adb_daemon.connection import Connection, Service
from vlm_agent.simulator.adb_daemon.files import Files, SyncService
from vlm_agent.simulator.adb_daemon.wire import (
    AUTH,
    AUTH_TOKEN,
    CLSE,
    CNXN,
    MAX_PAYLOAD,
    OKAY,
    OPEN,
    VERSION,
    WRTE,
    Packet,
    WireError,
    read_packet,
)

HELLO = Packet(CNXN, VERSION, MAX_PAYLOAD, b"host::")


class Peer:
    """A raw connection to the phone."""

    def __init__(self, server: PhoneServer):
        self.end = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        self.stream = self.end.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stream.close()
        self.end.close()

    def say(self, *packets: Packet) -> None:
        self.end.sendall(b"".join(packet.encoded() for packet in packets))

    def hear(self) -> Packet | None:
        return read_packet(self.stream)


class ScriptedEnd(io.BytesIO):
    """The phone's end of a connection whose client sends every header and payload apart; `events` has what it does."""

    def __init__(self, packets: list[Packet]):
        super().__init__()
        encoded = [packet.encoded() for packet in packets]
        self.pieces = [piece for one in encoded for piece in (one[:24], one[24:]) if piece]
        self.events = []

    def recv_into(self, buffer) -> int:
        piece = self.pieces.pop(0) if self.pieces else b""
        buffer[: len(piece)] = piece
        self.events.append("read")
        return len(piece)

    def setsockopt(self, *option: int) -> None:
        assert option == (socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        self.events.append("acknowledge")

    def sendall(self, data: bytes) -> None:
        stream = io.BytesIO(data)
        self.events.append([packet.command for packet in iter(lambda: read_packet(stream), None)])


class Greeting(Service):
    """A service that sends a few bytes and ends."""

    finished = True

    def start(self) -> bytes:
        return b"hello"


def test_every_read_is_acknowledged_at_once_and_the_answers_to_a_packet_are_one_write():
    """Otherwise a client that sends header and payload apart waits 40 ms for each payload to leave."""
    end = ScriptedEnd([HELLO, Packet(OPEN, 5, 0, b"exec:greet\0"), Packet(OKAY, 5, 1)])
    Connection(end, b"device::", lambda name: Greeting(), authorised=True).serve()
    both = ["read", "acknowledge"] * 2
    assert end.events == [*both, [CNXN], *both, [OKAY, WRTE], *both[:2], [CLSE], *both[:2]]


def test_the_banner_lists_only_implemented_features(served):
    with Peer(served) as peer:
        peer.say(HELLO)
        greeting = peer.hear()
    assert (greeting.command, greeting.arg0) == (CNXN, VERSION)
    assert greeting.payload.startswith(b"device::ro.product.name=")
    assert greeting.payload.endswith(b";features=shell_v2")


def test_an_unauthorised_computer_gets_an_auth_token_and_no_stream():
    handset = Handset(SimulatedPhone(7))
    with PhoneServer(handset, is_authorised=False) as server, Peer(server) as peer:
        peer.say(HELLO, Packet(OPEN, 1, 0, b"shell:input tap 1 1\0"), HELLO)
        answers = [peer.hear(), peer.hear()]
    assert [(answer.command, answer.arg0) for answer in answers] == [(AUTH, AUTH_TOKEN)] * 2
    assert not handset.commands


@pytest.mark.parametrize(
    "service", [b"tcp:80\0", b"reverse:forward:tcp:1;tcp:2\0", b"root:\0", b"framebuffer:\0", b"\xff"]
)
def test_streams_of_unknown_services_are_closed(served, service):
    with Peer(served) as peer:
        peer.say(HELLO, Packet(OPEN, 5, 0, service))
        peer.hear()
        assert peer.hear() == Packet(CLSE, 0, 5)


def test_one_packet_is_sent_and_waits_to_be_acknowledged(served):
    with Peer(served) as peer:
        peer.say(Packet(CNXN, VERSION, 4, b"host::"), Packet(OPEN, 5, 0, b"exec:echo abcdefg\0"))
        assert peer.hear().command == CNXN
        opened = peer.hear()
        assert (opened.command, opened.arg1) == (OKAY, 5)
        here = opened.arg0
        assert peer.hear() == Packet(WRTE, here, 5, b"abcd")
        peer.end.settimeout(0.1)
        with pytest.raises(TimeoutError):
            peer.end.recv(1)
        peer.end.settimeout(10)
        peer.say(Packet(OKAY, 5, here))
        assert read_packet(peer.end.makefile("rb")) == Packet(WRTE, here, 5, b"efg\n")


def test_a_line_ends_at_a_zero_byte(served):
    """It does on a real phone, where the line becomes an argument of a process."""
    with Peer(served) as peer:
        peer.say(HELLO, Packet(OPEN, 5, 0, b"exec:echo a\0; echo b\0"))
        for _ in range(3):
            answer = peer.hear()
    assert answer.payload == b"a\n"
    assert list(served.handset.commands) == [("echo", "a")]


def test_invalid_packets_end_only_their_own_connection(served):
    rng = random.Random(0)
    lies = [Packet(CNXN, VERSION, 1, b"x" * 100).encoded()[:-50], b"CNXN" + rng.randbytes(20), HELLO.encoded() * 2]
    huge = bytearray(HELLO.encoded())
    huge[12:16] = (1 << 31).to_bytes(4, "little")
    for noise in (*lies, bytes(huge), *(rng.randbytes(rng.randrange(200)) for _ in range(30))):
        with Peer(served) as peer:
            peer.end.sendall(noise)
    strays = [Packet(WRTE, 9, 9, b"x"), Packet(OKAY, 9, 9), Packet(CLSE, 9, 9), Packet(b"SYNC", 1, 1)]
    with Peer(served) as peer:
        peer.say(HELLO, *strays, Packet(OPEN, 5, 0, b"exec:echo alive\0"))
        assert [peer.hear().command for _ in range(3)] == [CNXN, OKAY, WRTE]


@pytest.mark.parametrize("request_", [b"DATA\1\0\0\0x", b"DONE\1\0\0\0", b"XXXX\0\0\0\0", b"SEND\xff\xff\xff\xff"])
def test_a_sync_request_out_of_order_fails_and_ends_the_stream(served, request_):
    with Peer(served) as peer:
        peer.say(HELLO, Packet(OPEN, 5, 0, b"sync:\0"))
        here = [peer.hear(), peer.hear()][1].arg0
        peer.say(Packet(WRTE, 5, here, request_), Packet(OKAY, 5, here))
        answers = [peer.hear() for _ in range(3)]
    assert {answer.command for answer in answers} == {OKAY, WRTE, CLSE}
    assert next(answer for answer in answers if answer.command == WRTE).payload.startswith(b"FAIL")


def test_a_file_whose_mode_is_a_number_of_5000_digits_is_received():
    sync = SyncService(Files(), threading.RLock())
    request = b"/sdcard/a," + b"7" * 5000
    assert sync.take(b"SEND" + len(request).to_bytes(4, "little") + request) == b""
    assert not sync.finished


@pytest.mark.parametrize(("path", "reason"), [("/sdcard", b"Is a directory"), ("/system/bin/a", b"Permission denied")])
def test_a_push_in_place_of_a_folder_or_where_nobody_may_write_fails(path, reason):
    sync = SyncService(files := Files(), threading.RLock())
    request = f"{path},33188".encode()
    sent = b"SEND" + len(request).to_bytes(4, "little") + request + b"DATA\1\0\0\0xDONE\0\0\0\0"
    assert sync.take(sent).endswith(reason)
    assert files.is_folder("/sdcard") and not files.is_file(path)


def test_files_that_would_fill_the_memory_are_refused(served, monkeypatch):
    monkeypatch.setattr("vlm_agent.simulator.adb_daemon.files.MAX_BYTES", 10)
    served.handset.files.put("/sdcard/a", b"123456")
    served.handset.files.put("/sdcard/a", b"1234567890")
    with pytest.raises(OSError, match="no space left"):
        served.handset.files.put("/sdcard/b", b"1")


def test_ports_that_adb_scans_for_emulators_are_refused():
    with pytest.raises(UserError, match="twice"):
        PhoneServer(Handset(SimulatedPhone(7)), 5555)


def test_a_header_that_announces_more_than_a_payload_may_have_is_refused_without_reading_on():
    header = bytearray(Packet(WRTE, 1, 1).encoded())
    header[12:16] = (MAX_PAYLOAD + 1).to_bytes(4, "little")
    with pytest.raises(WireError, match="not a packet"):
        read_packet(io.BytesIO(header))
