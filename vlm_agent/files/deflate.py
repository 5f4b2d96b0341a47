"""Deflate streams written by ISA-L, several times faster than zlib, with reproducible output.

At the start of a stream, ISA-L up to 2.32.1 takes the match table's slot for the third byte from a register
that still holds the stream's address: `.write_first_byte` in `igzip_icf_body_h1_gr_bt.asm` shifts `tmp2`, which no
instruction has set. Bytes of that slot further on can then match at another distance. The output is valid, but a few
screens in ten thousand have other bytes in a process with other addresses. `Deflater` avoids that code by the size of
the first call. ISA-L leaves the last 288 bytes (`ISAL_LOOK_AHEAD`) for the next call, so it compresses one of 289, and
the next call computes every slot from the bytes.
"""

from isal import isal_zlib

ZLIB, GZIP = 15, 31
"""Containers, as zlib's `wbits`."""

_FIRST_CALL_BYTES = 289


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
