import gzip
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.datasets.formats import tfrecord
from vlm_agent.datasets.formats.tfrecord import masked_crc32c, read_records, write_records
from vlm_agent.errors import DatasetError

PAYLOADS = [bytes([65 + number]) * (50 + 700 * number) for number in range(5)]


@pytest.fixture
def raw(tmp_path):
    """The five records without gzip."""
    write_records(tmp_path / "file", PAYLOADS)
    path = tmp_path / "raw"
    path.write_bytes(gzip.decompress((tmp_path / "file").read_bytes()))
    return path


def _offset(number):
    return sum(len(payload) + 16 for payload in PAYLOADS[:number])


def _flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


@settings(deadline=None, max_examples=50)
@given(payloads=st.lists(st.binary(max_size=3000), min_size=1))
def test_payloads_survive_the_round_trip_in_order(tmp_path_factory, payloads):
    path = tmp_path_factory.mktemp("records") / "file"
    assert write_records(path, payloads) == len(payloads)
    records = list(read_records(path))
    assert [record.payload for record in records] == payloads
    assert [record.number for record in records] == list(range(len(payloads)))


def test_the_framing_is_tensorflows(raw):
    # The masked CRC-32C of TensorFlow's own test vector for the length of a 50-byte record.
    assert masked_crc32c(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    assert struct.unpack("<Q", raw.read_bytes()[:8]) == (50,)


def test_a_file_without_gzip_is_read_too(raw):
    records = list(read_records(raw))
    assert [record.payload for record in records] == PAYLOADS
    assert [record.offset for record in records] == [_offset(number) for number in range(5)]


def test_a_raw_record_whose_length_looks_like_gzip_is_still_raw(tmp_path):
    write_records(tmp_path / "gzip", [b"x" * 0x8B1F])
    (tmp_path / "raw").write_bytes(gzip.decompress((tmp_path / "gzip").read_bytes()))
    assert (tmp_path / "raw").read_bytes().startswith(b"\x1f\x8b")
    assert [len(record.payload) for record in read_records(tmp_path / "raw")] == [0x8B1F]


def test_the_same_payloads_give_the_same_bytes_whatever_the_name_and_the_time(tmp_path, monkeypatch):
    write_records(tmp_path / "a", PAYLOADS)
    monkeypatch.setattr("time.time", lambda: 4e9)
    write_records(tmp_path / "b", PAYLOADS)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def payloads():
        yield b"one"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_records(tmp_path / "file", payloads())
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_payload_costs_one_record(raw):
    _flip(raw, _offset(2) + 12 + 100)
    records = list(read_records(raw))
    assert [record.payload for record in records] == [*PAYLOADS[:2], None, *PAYLOADS[3:]]
    assert records[2].number == 2 and records[2].offset == _offset(2)
    assert "payload" in records[2].error


@pytest.mark.parametrize("position", [0, 7, 8, 11])
def test_a_damaged_length_ends_the_file_with_one_report(raw, position):
    _flip(raw, _offset(3) + position)
    records = list(read_records(raw))
    assert [record.payload for record in records] == [*PAYLOADS[:3], None]
    assert "length is wrong" in records[3].error and records[3].number == 3


@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_wherever_a_byte_flips_all_other_records_or_all_before_it_are_kept(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("flipped")
    write_records(folder / "gzip", PAYLOADS)
    raw = folder / "raw"
    raw.write_bytes(gzip.decompress((folder / "gzip").read_bytes()))
    position = data.draw(st.integers(0, raw.stat().st_size - 1))
    _flip(raw, position)
    hit = max(number for number in range(5) if _offset(number) <= position)
    records = list(read_records(raw))
    assert [record.number for record in records if record.error] == [hit]
    payloads = [record.payload for record in records]
    in_header = position < _offset(hit) + 12
    assert payloads == [*PAYLOADS[:hit], None] + ([] if in_header else PAYLOADS[hit + 1 :])


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_truncated_gzip_keeps_its_good_records_and_reports_once(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "file"
    noise = [bytes((seed * 7919 + i * i * 31) % 251 for i in range(2000)) for seed in range(4)]
    write_records(path, noise)
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(1, len(whole) - 1))])
    *good, last = read_records(path)
    assert [record.payload for record in good] == noise[: len(good)]
    assert last.number == len(good) and ("truncated" in last.error or "not a TFRecord" in last.error)


def test_records_of_a_gzip_that_ends_early_are_all_there(tmp_path):
    write_records(tmp_path / "file", PAYLOADS)
    whole = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(whole[:-8])
    records = list(read_records(tmp_path / "file"))
    assert [record.payload for record in records] == [*PAYLOADS, None]
    assert "gzip stream is truncated" in records[5].error


def test_a_truncated_raw_file_is_reported(raw):
    raw.write_bytes(raw.read_bytes()[: _offset(4) + 100])
    *good, last = read_records(raw)
    assert len(good) == 4 and "truncated" in last.error
    raw.write_bytes(raw.read_bytes()[: _offset(4) + 5])
    *good, last = read_records(raw)
    assert len(good) == 4 and "5 of 12 bytes" in last.error


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (gzip.compress(b"", mtime=0), "empty"),
        (b"hello", "not a TFRecord"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "not a TFRecord"),
        (gzip.compress(b"some text that is long enough", mtime=0), "not a TFRecord"),
        (b"\x1f\x8b" + b"not gzip at all", "gzip stream is damaged"),
    ],
)
def test_a_file_that_is_not_a_tfrecord_is_refused_with_the_reason(tmp_path, content, reason):
    path = tmp_path / "file"
    path.write_bytes(content)
    (record,) = read_records(path)
    assert record.payload is None and record.number == 0 and reason in record.error


def test_a_folder_or_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="is a folder"):
        next(read_records(tmp_path))
    with pytest.raises(DatasetError, match="does not exist"):
        next(read_records(tmp_path / "nowhere"))


def test_a_record_beyond_the_limit_is_stepped_over(raw, monkeypatch):
    monkeypatch.setattr(tfrecord, "MAX_RECORD_BYTES", 2000)
    records = list(read_records(raw))
    assert [record.payload for record in records] == [*PAYLOADS[:3], None, None]
    assert "more than the limit of 2000" in records[3].error


def test_a_length_of_exabytes_allocates_no_memory(raw):
    length = struct.pack("<Q", 1 << 62)
    with raw.open("ab") as file:
        file.write(length + struct.pack("<I", masked_crc32c(length)) + b"little")
    *good, last = read_records(raw)
    assert len(good) == 5 and "truncated" in last.error


def test_a_gzip_of_several_members_is_one_file_damaged_or_not(raw, tmp_path):
    data = raw.read_bytes()
    half = _offset(3)
    path = tmp_path / "members"
    path.write_bytes(gzip.compress(data[:half]) + gzip.compress(data[half:]) + bytes(512))
    assert [record.payload for record in read_records(path)] == PAYLOADS
    path.write_bytes(gzip.compress(data[:half]) + gzip.compress(data[half:])[:-8])
    assert [record.payload for record in read_records(path)] == [*PAYLOADS, None]


def test_a_wrong_gzip_checksum_is_reported_behind_the_last_record(tmp_path):
    write_records(tmp_path / "file", PAYLOADS)
    _flip(tmp_path / "file", -6)
    *good, last = read_records(tmp_path / "file")
    assert [record.payload for record in good] == PAYLOADS
    assert last.number == 5 and "gzip stream is damaged" in last.error
