"""ISA-L's deflate stores the third position of a stream in a slot of its match table that a hash of the stream's
address selects. Bytes of this slot further on are then compared with the wrong position, and may match there.
"""

import gzip
import zlib

import numpy as np
import pytest
from isal import isal_zlib

from vlm_agent.datasets.formats.tfrecord import write_records
from vlm_agent.datasets.shards.schema import decode_screen
from vlm_agent.files.png import GZIP, ZLIB, Deflater, encode_png

SLOTS = 8192
WINDOW = 1 << 15
STREAM_OFFSET = 0x40
"""Where ISA-L's stream begins in a compressor."""


@pytest.mark.parametrize("seed", range(4))
def test_the_bytes_of_a_png_do_not_depend_on_the_compressors_place_in_memory(monkeypatch, seed):
    compressors = [_compressor(ZLIB) for _ in range(2)]
    stream = _stream_with_a_match_in(_slot_of_address(compressors[0]), seed)
    screen = np.frombuffer(stream[1:], np.uint8).reshape(1, -1, 3)  # the first byte is a filter's number
    pngs = []
    for compressor in compressors:
        monkeypatch.setattr(isal_zlib, "compressobj", lambda *_, compressor=compressor: compressor)
        pngs.append(encode_png(screen))
    assert pngs[0] == pngs[1]
    assert np.array_equal(decode_screen(pngs[0]), screen)


@pytest.mark.parametrize("seed", range(4))
def test_the_bytes_of_a_record_file_do_not_depend_on_the_compressors_place_in_memory(monkeypatch, tmp_path, seed):
    compressors = [_compressor(GZIP) for _ in range(2)]
    stream = _stream_with_a_match_in(_slot_of_address(compressors[0]), seed)
    for number, compressor in enumerate(compressors):
        monkeypatch.setattr(isal_zlib, "compressobj", lambda *_, compressor=compressor: compressor)
        write_records(tmp_path / str(number), [stream[12:]])  # a length and its checksum are the first 12 bytes
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()


@pytest.mark.parametrize("piece", [1, 12, 288, 289, 290, 100_000])
@pytest.mark.parametrize("size", [0, 1, 4, 16, 288, 289, 290, 578, 70_000])
def test_pieces_of_any_size_are_one_stream(size, piece):
    data = np.random.default_rng(size).integers(0, 4, size, np.uint8).tobytes()
    for container, inflate in ((ZLIB, zlib.decompress), (GZIP, gzip.decompress)):
        deflate = Deflater(container)
        parts = [deflate.compress(memoryview(data)[at : at + piece]) for at in range(0, size, piece)]
        assert inflate(b"".join(parts) + deflate.flush()) == data


def test_a_gzip_stream_has_no_time_and_no_name():
    assert Deflater(GZIP).flush()[:10] == bytes([0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF])


def _compressor(container: int):
    return isal_zlib.compressobj(1, isal_zlib.DEFLATED, container)


def _stream_with_a_match_in(slot: int, seed: int) -> bytes:
    """Four bytes of `slot` are one window after the third position, and 1,000 bytes later again; around them are zeros.

    The first time, they are the end of one match and the start of another, so ISA-L does not store their own position.
    """
    word = _word_in(slot)
    start, end = np.random.default_rng(seed).integers(1, 256, (2, 14), np.uint8)
    left, right = start.tobytes() + word[:2], word[2:] + end.tobytes()
    pieces = {1000: left, 2000: right, WINDOW + 2 - len(start): left + right, WINDOW + 1002: word}
    stream = bytearray(2 * WINDOW)
    for place, piece in pieces.items():
        stream[place : place + len(piece)] = piece
    return bytes(stream)


def _slot_of_address(compressor) -> int:
    return _slot(((id(compressor) + STREAM_OFFSET) >> 16) & 0xFFFF_FFFF)


def _word_in(slot: int) -> bytes:
    words = (number.to_bytes(4, "little") for number in range(0x01010101, 1 << 32, 0x00010203))
    return next(word for word in words if 0 not in word and _slot(int.from_bytes(word, "little")) == slot)


def _slot(word: int) -> int:
    """CRC-32C as the processor's instruction computes it, from 0."""
    for _ in range(32):
        word = (word >> 1) ^ (0x82F63B78 if word & 1 else 0)
    return word % SLOTS
