"""PNG of screens, an order of magnitude faster than Pillow writes it.

Every row has filter 2 (the difference to the row above), deflated by ISA-L at its fast level. Screens have flat areas
and repeated rows, so this filter compresses nearly as well as the best of all five for each row, and it is a single
numpy subtraction.

At the start of a stream, ISA-L up to 2.32.1 takes the match table's slot for the third byte from a register
that still holds the stream's address: `.write_first_byte` in `igzip_icf_body_h1_gr_bt.asm` shifts `tmp2`, which no
instruction has set. Bytes of that slot further on can then match at another distance. The output is valid, but a few
screens in ten thousand have other bytes in a process with other addresses. `Deflater` avoids that code by the size of
the first call. ISA-L leaves the last 288 bytes (`ISAL_LOOK_AHEAD`) for the next call, so it compresses one of 289, and
the next call computes every slot from the bytes.
"""

import struct

import numpy as np
from isal import isal_zlib

from vlm_agent.errors import DatasetError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_UP_FILTER = 2
_BAND_BYTES = 1 << 18  # half of the smallest common second-level cache of a core


ZLIB, GZIP = 15, 31
"""Containers, as zlib's `wbits`."""

_FIRST_CALL_BYTES = 289


def encode_png(screen: np.ndarray) -> bytes:
    """A PNG of uint8 (height, width, 3) RGB pixels."""
    check_pixels(screen)
    height, width = screen.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = _deflated_rows(screen.reshape(height, width * 3))
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def _deflated_rows(rows: np.ndarray) -> bytes:
    """Filters and deflates one band of rows at a time, uint8 (height, 3 × width).

    A filtered band is still in the core's cache when it is deflated, so workers do not compete for memory bandwidth.
    The result is hardly larger than with a single band.
    """
    height, width = rows.shape
    count = max(1, _BAND_BYTES // (1 + width))
    band = np.empty((min(count, height), 1 + width), np.uint8)
    band[:, 0] = _UP_FILTER
    deflate = Deflater()
    band[0, 1:] = rows[0]
    parts = [deflate.compress(band[:1].reshape(-1).data)]
    for top in range(1, height, count):
        above, here = rows[top - 1 : top - 1 + count], rows[top : top + count]
        filtered = band[: len(here)]
        np.subtract(here, above[: len(here)], out=filtered[:, 1:])
        parts.append(deflate.compress(filtered.reshape(-1).data))
    parts.append(deflate.flush())
    return b"".join(parts)


def check_pixels(screen: np.ndarray) -> None:
    """Raises DatasetError unless the array is a screen: uint8 (height, width, 3), not empty."""
    if screen.dtype != np.uint8 or screen.ndim != 3 or screen.shape[2] != 3 or not screen.size:
        raise DatasetError(f"a screen is uint8 (height, width, 3), got {screen.dtype} {screen.shape}")


def _chunk(name: bytes, data: bytes) -> bytes:
    checksum = isal_zlib.crc32(data, isal_zlib.crc32(name))
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", checksum)


class Deflater:
    """One stream at the fast level: `compress` all of it in pieces of any size, then `flush`."""

    def __init__(self, container: int = ZLIB) -> None:
        self._stream = isal_zlib.compressobj(1, isal_zlib.DEFLATED, container)
        self._head = bytearray()

    def compress(self, data: bytes | memoryview) -> bytes:
        """The output that is ready after `data`, which may be none."""
        missing = _FIRST_CALL_BYTES - len(self._head)
        if not missing:
            return self._stream.compress(data)
        self._head += data[:missing]
        if len(self._head) < _FIRST_CALL_BYTES:
            return b""
        return self._stream.compress(self._head) + self._stream.compress(data[missing:])

    def flush(self) -> bytes:
        """The rest of the output."""
        start = self._stream.compress(self._head) if len(self._head) < _FIRST_CALL_BYTES else b""
        return start + self._stream.flush()
