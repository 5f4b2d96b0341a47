"""The packets between adb's server and a device (AOSP, `packages/modules/adb/protocol.txt`).

A packet is a header of 24 bytes (command, two arguments, length and byte sum of the payload, inverted command; little
endian) and the payload.
"""

import struct
from typing import BinaryIO, NamedTuple

CNXN, AUTH, OPEN, OKAY, CLSE, WRTE = b"CNXN", b"AUTH", b"OPEN", b"OKAY", b"CLSE", b"WRTE"

VERSION = 0x01000001
"""The first protocol version whose packets need no valid byte sum."""

MAX_PAYLOAD = 256 * 1024

AUTH_TOKEN, AUTH_SIGNATURE = 1, 2
TOKEN_BYTES = 20

_HEADER = struct.Struct("<4s5I")
_INVERTED = 0xFFFFFFFF


class WireError(Exception):
    """The peer does not use ADB's protocol; the connection must be closed."""


class Packet(NamedTuple):
    """`command`: four ASCII letters. The command determines the meaning of `arg0` and `arg1` (unsigned 32-bit)."""

    command: bytes
    arg0: int
    arg1: int
    payload: bytes = b""

    def encoded(self) -> bytes:
        """Header and payload as bytes."""
        code = int.from_bytes(self.command, "little")
        size, total = len(self.payload), sum(self.payload) & _INVERTED
        return _HEADER.pack(self.command, self.arg0, self.arg1, size, total, code ^ _INVERTED) + self.payload


def read_packet(stream: BinaryIO) -> Packet | None:
    """The next packet; None at the end of the stream, even within a packet. Raises WireError for other data."""
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    command, arg0, arg1, size, _, complement = _HEADER.unpack(header)
    if int.from_bytes(command, "little") ^ _INVERTED != complement or size > MAX_PAYLOAD:
        raise WireError(f"not a packet of ADB: it starts with {header.hex()}")
    payload = stream.read(size)
    return Packet(command, arg0, arg1, payload) if len(payload) == size else None
