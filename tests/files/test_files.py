import errno
import gzip
import hashlib
import io
import os
import stat
import struct
import subprocess
import sys

import pytest
from helpers.data.made_episodes import made_screen
from helpers.robustness.durability import record_syncs_and_renames
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.datasets.formats.tfrecord import masked_crc32c, read_records
from vlm_agent.errors import DatasetError
from vlm_agent.files import (
    PARTIAL,
    atomic_folder,
    atomic_write,
    is_free,
    read_json,
    remove_partials,
    sha256_of,
    write_json,
)
from vlm_agent.files.hashing import HashedFile, HashedFiles
from vlm_agent.files.jobs import Job


def _sha256(*contents):
    return hashlib.sha256(b"".join(contents)).hexdigest()


def _hashed(data):
    digest = hashlib.sha256()
    return HashedFile(io.BytesIO(data), digest), digest


def _records(count, size):
    """A raw TFRecord file of noise, which deflate cannot make smaller."""
    payloads = [made_screen(1, size, number).tobytes() for number in range(count)]
    return b"".join(
        length + struct.pack("<I", masked_crc32c(length)) + payload + struct.pack("<I", masked_crc32c(payload))
        for payload in payloads
        for length in [struct.pack("<Q", len(payload))]
    )


_calls = st.lists(st.tuples(st.sampled_from(["read", "readinto", "seek"]), st.integers(0, 40)), max_size=20)


@settings(deadline=None)
@given(data=st.binary(max_size=100), calls=_calls)
def test_every_byte_counts_once_and_in_order_whatever_is_read_again(data, calls):
    file, digest = _hashed(data)
    plain = io.BytesIO(data)
    for call, number in calls:
        if call == "read":
            assert file.read(number) == plain.read(number)
        elif call == "readinto":
            buffer, expected = bytearray(number), bytearray(number)
            assert file.readinto(buffer) == plain.readinto(expected) and buffer == expected
        else:
            place = min(number, file.hashed)
            assert file.seek(place) == plain.seek(place) == place
        assert file.tell() == plain.tell() <= file.hashed
        assert digest.hexdigest() == _sha256(data[: file.hashed])
    file.read_rest()
    assert digest.hexdigest() == _sha256(data) and file.hashed == len(data)


def test_read_without_a_count_returns_all_bytes():
    file, digest = _hashed(b"abcdef")
    assert file.read(2) + file.read() == b"abcdef"
    assert digest.hexdigest() == _sha256(b"abcdef")


def test_a_seek_beyond_the_bytes_read_is_refused():
    file, _ = _hashed(b"abcdef")
    file.read(2)
    with pytest.raises(ValueError, match="cannot seek to byte 3: only 2 were read"):
        file.seek(3)
    assert file.read() == b"cdef"


def test_files_are_one_after_the_other_under_one_digest(tmp_path):
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "c").write_bytes(b"three")
    files, positions = HashedFiles(), []
    for name in "abc":
        with files.open(tmp_path / name) as file:
            positions.append(files.position)
            file.read(2)
            positions.append(files.position)
    assert positions == [0, 2, 3, 3, 3, 5]
    assert files.position == 8
    assert files.hexdigest() == _sha256(b"one", b"three")


def test_the_digest_of_files_is_that_of_their_bytes_together(tmp_path):
    contents = [made_screen(700, 800, 1).tobytes(), b"", b"end"]
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content)
    assert sha256_of([tmp_path / str(number) for number in range(3)]) == _sha256(*contents)
    assert sha256_of([]) == _sha256()


def _read(path):
    """The records of a file, as read plainly and through a digest."""
    files = HashedFiles()
    with files.open(path) as file:
        through = list(read_records(path, file))
    assert through == list(read_records(path))
    assert files.position == path.stat().st_size
    assert files.hexdigest() == _sha256(path.read_bytes())
    return through


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_good_file_is_hashed_while_its_records_are_read(tmp_path, compress):
    (tmp_path / "file").write_bytes(compress(_records(5, 50_000)))
    assert [record.error for record in _read(tmp_path / "file")] == [None] * 5


def test_a_damaged_gzip_that_is_read_again_from_its_beginning_is_hashed_once(tmp_path):
    data = bytearray(gzip.compress(_records(5, 50_000)))
    middle = len(data) // 2
    data[middle : middle + 100] = bytes(100)
    (tmp_path / "file").write_bytes(data)
    *good, last = _read(tmp_path / "file")
    assert good and last.ends_file


def test_bytes_behind_damage_that_are_never_inflated_are_hashed(tmp_path):
    data = _records(5, 50_000)
    (tmp_path / "file").write_bytes(b"\xff" * 20 + data)
    (only,) = _read(tmp_path / "file")
    assert "not a TFRecord file" in only.error


_RAW = _records(4, 200)
_GZIP = gzip.compress(_RAW, mtime=0)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_file_damaged_anywhere_is_hashed_whole(tmp_path_factory, data):
    content = bytearray(data.draw(st.sampled_from([_RAW, _GZIP, _GZIP + _GZIP])))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=3)):
        content[place] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("hashed") / "file"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    _read(path)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "file"
    with atomic_write(path) as temporary:
        temporary.write_text("first")
        assert not path.exists()
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as temporary:
        temporary.write_text("second")
        raise KeyboardInterrupt
    assert path.read_text() == "first"
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "folder"
    killed = tmp_path / ".folder.partial"
    killed.mkdir()
    (killed / "left").touch()
    with pytest.raises(KeyboardInterrupt), atomic_folder(path) as folder:
        (folder / "file").touch()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    path.mkdir()
    assert is_free(path) and is_free(tmp_path / "absent")
    with atomic_folder(path) as folder:
        (folder / "inside").mkdir()
        (folder / "inside" / "file").write_text("content")
    assert (path / "inside" / "file").read_text() == "content"
    assert list(tmp_path.iterdir()) == [path] and not is_free(path) and not is_free(path / "inside" / "file")


def test_a_second_writer_of_a_folder_is_refused_and_the_first_one_is_complete(tmp_path):
    path = tmp_path / "out"
    with atomic_folder(path) as folder:
        (folder / "first").touch()
        with pytest.raises(DatasetError, match=f"another process writes {path}"), atomic_folder(path):
            pass
        (folder / "last").touch()
    assert {one.name for one in path.iterdir()} == {"first", "last"}
    with pytest.raises(DatasetError, match=f"{path} exists"), atomic_folder(path):
        pass
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_to_an_empty_folder_is_written_through(tmp_path, exists):
    target, link = tmp_path / "disk" / "target", tmp_path / "out"
    target.mkdir(parents=True)
    if not exists:
        target.rmdir()
    link.symlink_to(target)
    with atomic_folder(link) as folder:
        (folder / "file").touch()
    assert link.is_symlink()
    assert (target / "file").exists()


def test_a_file_is_durable_before_its_rename_and_the_rename_afterwards(tmp_path, monkeypatch):
    events = record_syncs_and_renames(monkeypatch)
    with atomic_write(tmp_path / "manifest.json") as temporary:
        temporary.write_text("{}")
    assert events == [("sync", temporary), ("rename", tmp_path / "manifest.json"), ("sync", tmp_path)]


def test_a_file_is_written_where_folders_cannot_be_synced(tmp_path, monkeypatch):
    """SMB before Linux 5.9."""
    fsync = os.fsync

    def fsync_of_files(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync_of_files)
    with atomic_write(tmp_path / "manifest.json") as temporary:
        temporary.write_text("{}")
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_everything_in_a_folder_is_durable_before_its_rename(tmp_path, monkeypatch):
    events = record_syncs_and_renames(monkeypatch)
    with atomic_folder(tmp_path / "model") as temporary:
        (temporary / "parts").mkdir()
        (temporary / "parts" / "one").write_text("1")
    before, after = events[:3], events[3:]
    inside = {temporary, temporary / "parts", temporary / "parts" / "one"}
    assert {path for what, path in before if what == "sync"} == inside
    assert after == [("rename", tmp_path / "model"), ("sync", tmp_path)]


def test_leftovers_of_killed_processes_are_removed(tmp_path):
    (tmp_path / "data").mkdir()
    for name in (".data.0123.partial", "data/.file.4567.partial", "data/kept.partial"):
        (tmp_path / name).touch()
    remove_partials(tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["data", "kept.partial"]


def test_the_folder_of_a_killed_process_is_left_to_the_next_one_that_writes_it(tmp_path):
    left = tmp_path / "data/.aitw.partial"
    left.mkdir(parents=True)
    remove_partials(tmp_path)
    assert left.is_dir()
    with atomic_folder(tmp_path / "data/aitw") as temporary:
        (temporary / "one").touch()
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["aitw"]


def test_json_that_is_damaged_is_named_with_its_remedy(tmp_path):
    path = tmp_path / "plan.json"
    write_json(path, {"name": "é"})
    assert path.read_text(encoding="utf-8") == '{\n "name": "é"\n}\n'
    assert read_json(path, "remove it") == {"name": "é"}
    path.write_bytes(b'{"name": "\xff"}')
    with pytest.raises(DatasetError, match=r"plan\.json is damaged \(.*\); remove it"):
        read_json(path, "remove it")


def test_the_import_leaves_the_umask_of_the_process(tmp_path):
    code = "import os; os.umask(0o027); import vlm_agent.files; print(oct(os.umask(0)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0o27"


def test_without_locks_nothing_of_another_writer_is_removed(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", unsupported)
    with atomic_folder(tmp_path / "model") as first:
        (first / "weights").write_bytes(b"w")
        with pytest.raises(DatasetError, match="another process writes"), atomic_folder(tmp_path / "model"):
            pass
        other = tmp_path / f".table{PARTIAL}"
        other.write_bytes(b"half")
        with Job(tmp_path, "an evaluation").locked():
            pass
        assert other.exists()
    assert (tmp_path / "model" / "weights").read_bytes() == b"w"
