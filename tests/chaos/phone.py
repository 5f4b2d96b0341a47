"""A served phone under random shell lines, packets and kills, between which it must answer as ever."""

import contextlib
import io
import random
import signal
import socket
import struct
import subprocess
import time

import numpy as np
from helpers.phones.adb_servers import free_port
from PIL import Image

from chaos.commands import Scene, in_threads
from chaos.findings import MIB
from vlm_agent.simulator.adb_daemon.wire import CLSE, CNXN, MAX_PAYLOAD, OKAY, OPEN, VERSION, WRTE, Packet, read_packet

NAME = "phone"
SIZE = (448, 208)
PATIENCE = 60.0
CLIENTS = 3
LINES_A_BURST = 20
KILL_SHARE = 0.02
"""The share of bursts in which the phone is killed: seldom, so that a leak can grow."""

GROWTH = 300 * MIB
"""Allowed beside the memory at the start: 64 MiB of files, records of 100,000 commands and actions, drawing caches."""

WORDS = (
    "input tap 10 20", "input tap 9999 -3", "input swipe 100 400 100 100 300", "input swipe 5 5 5 5 900",
    "input text 'a%sb'", "input text", "input keyevent 4", "input keyevent HOME ENTER 187", "input keyevent 999",
    "screencap -p", "screencap -p /sdcard/s.png", "screencap", "cat /sdcard/s.png", "rm -f /sdcard/s.png", "wm size",
    "wm density", "dumpsys window", "dumpsys activity activities", "dumpsys nothing", "uiautomator dump /sdcard/w.xml",
    "cat /sdcard/w.xml", "getprop", "getprop ro.build.version.sdk", "pm list packages", "ime list -s -a",
    "ime set com.android.adbkeyboard/.AdbIME", "am broadcast -a ADB_INPUT_B64 --es msg aGFsbG8=",
    "am broadcast -a ADB_INPUT_B64 --es msg %%%", "am start -n org.shop/.Home", "am force-stop org.shop",
    "monkey -p org.shop -c android.intent.category.LAUNCHER 1", "settings get secure default_input_method",
    "settings put system x 1", "echo hello", "true", "false", "sleep 0.01", "ls /sdcard", "nothing", "getevent -lp", "",
)  # fmt: skip
JOINTS = (
    " ; ",
    " && ",
    " || ",
    " | ",
    " & ",
    "\n",
    " > /sdcard/o ",
    " >> /sdcard/o ",
    " 2>/dev/null ",
    " < /sdcard/o ",
    " ",
)
NOISE = (
    "'",
    '"',
    "$(",
    ")",
    "`",
    "\\",
    "$?",
    "$HOME",
    "*",
    "{a,b}",
    "日本",
    "\x07",
    "(",
    "<<E",
    "#",
    "~",
    "%s",
    "-p",
    "0" * 40,
)


def random_line(rng: random.Random) -> str:
    """Up to four commands with random joints, and in every second line some characters that a shell treats apart."""
    line = rng.choice(WORDS)
    for _ in range(rng.randint(0, 3)):
        line += rng.choice(JOINTS) + rng.choice(WORDS)
    for _ in range(rng.choice((0, 0, 1, 3))):
        at = rng.randint(0, len(line))
        line = line[:at] + rng.choice(NOISE) + line[at:]
    return line


class Peer:
    """A connection to the phone that runs shell lines and sends and receives files."""

    def __init__(self, port: int) -> None:
        self._end = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._stream = self._end.makefile("rb")
        self._numbers = 0

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()
        self._end.close()

    def greet(self) -> None:
        self.send(Packet(CNXN, VERSION, MAX_PAYLOAD, b"host::").encoded())
        while self._read().command != CNXN:
            pass

    def send(self, data: bytes) -> None:
        self._end.sendall(data)

    def exec(self, line: str) -> bytes:
        """The output of a line, stdout and stderr together."""
        return self._stream_of(b"exec:" + line.encode(), b"")

    def push(self, path: str, data: bytes) -> bytes:
        """The phone's answer, OKAY or FAIL and a reason."""
        name = f"{path},33188".encode()
        pieces = [data[at : at + 65536] for at in range(0, len(data), 65536)]
        body = b"".join(b"DATA" + struct.pack("<I", len(piece)) + piece for piece in pieces)
        request = b"SEND" + struct.pack("<I", len(name)) + name + body + b"DONE" + struct.pack("<I", 1)
        return self._stream_of(b"sync:", request + b"QUIT" + bytes(4))

    def pull(self, path: str) -> bytes:
        answer, data = (
            self._stream_of(b"sync:", b"RECV" + struct.pack("<I", len(path)) + path.encode() + b"QUIT" + bytes(4)),
            b"",
        )
        while answer[:4] == b"DATA":
            size = struct.unpack("<I", answer[4:8])[0]
            data, answer = data + answer[8 : 8 + size], answer[8 + size :]
        return data

    def _stream_of(self, service: bytes, request: bytes) -> bytes:
        """Opens a service, sends the request, and returns what it sends until it closes the stream."""
        self._numbers += 1
        self.send(Packet(OPEN, self._numbers, 0, service + b"\0").encoded())
        pieces = [request[at : at + MAX_PAYLOAD] for at in range(0, len(request), MAX_PAYLOAD)]
        received = b""
        while True:
            packet = self._read()
            if packet.arg1 != self._numbers:
                continue
            if packet.command == CLSE:
                return received
            if packet.command == OKAY and pieces:
                self.send(Packet(WRTE, self._numbers, packet.arg0, pieces.pop(0)).encoded())
            if packet.command == WRTE:
                received += packet.payload
                self.send(Packet(OKAY, self._numbers, packet.arg0).encoded())

    def _read(self) -> Packet:
        packet = read_packet(self._stream)
        if packet is None:
            raise ConnectionError("the phone closed the connection")
        return packet


class Phone:
    """`rounds_until_the_end` starts the phone, disturbs it, and starts it again after a kill."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.port = scene, free_port()
        self._rng = scene.rng(NAME)
        self._pushed: dict[str, bytes] = {}

    def rounds_until_the_end(self) -> None:
        process = self._start()
        number = 0
        while not self.scene.is_over():
            number += 1
            begin = time.monotonic()
            if self._rng.random() < KILL_SHARE:
                self._kill_within_a_burst(process, number)
                process = self._start()
            else:
                self._burst(number, may_break=False)
            self._check(number)
            time.sleep(time.monotonic() - begin)  # leaves processor time to the commands
        process.kill()
        process.wait()

    def _start(self) -> subprocess.Popen:
        words = ["phone", "--port", str(self.port), "--seed", "7", "--size", f"{SIZE[0]}x{SIZE[1]}"]
        process = self.scene.start(NAME, words)
        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), Peer(self.port):
                break
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the phone did not start: status {process.poll()}; see logs/{NAME}.log")
            time.sleep(0.05)
        self._pushed.clear()
        return process

    def _kill_within_a_burst(self, process: subprocess.Popen, number: int) -> None:
        how = self._rng.choice((signal.SIGKILL, signal.SIGTERM))
        burst = in_threads(lambda: self._burst(number, may_break=True))
        time.sleep(self._rng.uniform(0, 0.5))
        process.send_signal(how)
        process.wait(PATIENCE)
        for thread in burst:
            thread.join(PATIENCE)
        self.scene.findings.count(NAME, f"{how.name} and restart")

    def _burst(self, number: int, may_break: bool) -> None:
        """Several clients at once, each with lines or with packets. `may_break`: the phone may be killed meanwhile."""
        clients = [self.scene.rng(f"client {number} {index}") for index in range(CLIENTS)]
        for thread in in_threads(*(lambda rng=rng: self._disturb(rng, may_break) for rng in clients)):
            thread.join()

    def _disturb(self, rng: random.Random, may_break: bool) -> None:
        try:
            (self._send_lines if rng.random() < 0.6 else self._send_packets)(rng)
        except OSError as error:
            if not may_break:
                self.scene.findings.violation(NAME, f"a client lost its connection: {error!r}")

    def _send_lines(self, rng: random.Random) -> None:
        with Peer(self.port) as peer:
            peer.greet()
            for _ in range(LINES_A_BURST):
                peer.exec(random_line(rng))
                self.scene.findings.count(NAME, "shell lines")

    def _send_packets(self, rng: random.Random) -> None:
        """Noise; the phone may close this connection at any time, but no other."""
        with contextlib.suppress(OSError), Peer(self.port) as peer:
            for _ in range(rng.randint(1, 20)):
                self.scene.findings.count(NAME, "packets")
                peer.send(random_packet(rng))

    def _check(self, number: int) -> None:
        """A new client gets the right answers, the whole screen, and every file that was pushed since the start."""
        try:
            with Peer(self.port) as peer:
                peer.greet()
                if (answer := peer.exec(f"echo {number}")) != f"{number}\n".encode():
                    self.scene.findings.violation(NAME, f"echo {number} answered {answer!r}")
                self._check_screen(peer.exec("screencap -p"))
                self._check_files(peer, number)
        except OSError as error:
            self.scene.findings.violation(NAME, f"does not answer after burst {number}: {error!r}")

    def _check_screen(self, png: bytes) -> None:
        pixels = np.array(Image.open(io.BytesIO(png)))
        self.scene.findings.count(NAME, "screenshots")
        if pixels.shape != (*SIZE, 3):
            self.scene.findings.violation(NAME, f"a screenshot has shape {pixels.shape}")

    def _check_files(self, peer: Peer, number: int) -> None:
        """Pushes a file, and pulls it and one of the earlier ones; lines of the clients do not name these."""
        path = f"/data/local/tmp/{number % 20}"
        self._pushed[path] = self._rng.randbytes(self._rng.choice((0, 1, 65536, 300_000)))
        answer = peer.push(path, self._pushed[path])
        if answer[:4] != b"OKAY":
            self.scene.findings.violation(NAME, f"push of {path} answered {answer[:80]!r}")
        for name in {path, self._rng.choice(sorted(self._pushed))}:
            if peer.pull(name) != self._pushed[name]:
                self.scene.findings.violation(NAME, f"{name} came back with other bytes")
            self.scene.findings.count(NAME, "files pushed and pulled")


def random_packet(rng: random.Random) -> bytes:
    """Noise, a packet cut short, a packet with wrong numbers, or a valid one that nobody expects."""
    command = rng.choice((CNXN, OPEN, OKAY, WRTE, CLSE, b"AUTH", b"SYNC", rng.randbytes(4)))
    service = rng.choice((b"shell:", b"exec:", b"sync:", b"shell,v2:", b"root:", b"tcp:1", rng.randbytes(9)))
    payload = rng.choice((b"", service + random_line(rng).encode(), rng.randbytes(rng.randint(0, 3000))))
    number = rng.choice((0, 1, 2, 0xFFFFFFFF, rng.getrandbits(32)))
    valid = bytearray(Packet(command, number, rng.choice((0, 1, 4, MAX_PAYLOAD)), payload).encoded())
    kind = rng.random()
    if kind < 0.1:
        return rng.randbytes(rng.randint(1, 200))
    if kind < 0.2:
        return bytes(valid[: rng.randint(0, len(valid))])
    if kind < 0.3:
        valid[rng.randrange(24)] ^= 1 << rng.randrange(8)
    return bytes(valid)
