"""JSON with a checksum: damage and edits are errors that name the file, earlier files are read, digests stay valid."""

import hashlib
import json
from dataclasses import dataclass

import pytest

from vlm_agent.errors import DatasetError
from vlm_agent.files import content_of, parsing, read_checked, write_checked, write_json

CONTENT = {"episodes": 12, "name": "é", "share": 0.1, "files": [{"shard": None}]}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "counts.json"
    write_checked(path, CONTENT)
    return path


def test_content_is_read_without_the_checksum(path):
    assert read_checked(path, "remove it") == CONTENT
    assert list(json.loads(path.read_text())) == ["checksum", *CONTENT]


def test_every_flipped_bit_of_every_byte_is_an_error_that_names_the_file(path, monkeypatch):
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            monkeypatch.setattr(type(path), "read_bytes", lambda _, damaged=damaged: bytes(damaged))  # no disk: faster
            with pytest.raises(DatasetError, match=r"counts.json") as error:
                read_checked(path, "remove it")
            assert "\n" not in str(error.value)


def test_an_edited_file_is_an_error_that_says_how_to_keep_the_edit(path):
    path.write_text(path.read_text().replace("12", "13"))
    with pytest.raises(DatasetError, match=r"was edited; remove it. To keep an edit, remove the line \"checksum\""):
        read_checked(path, "remove it")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if '"checksum"' not in line))
    assert read_checked(path, "remove it") == CONTENT | {"episodes": 13}


def test_a_file_in_another_layout_is_an_error(path):
    path.write_text(json.dumps(json.loads(path.read_text())))
    with pytest.raises(DatasetError, match="differs from its checksum"):
        read_checked(path, "remove it")


def test_a_file_of_an_earlier_version_is_read_and_has_the_same_content(path, tmp_path):
    earlier = tmp_path / "earlier.json"
    write_json(earlier, CONTENT)
    assert read_checked(earlier, "remove it") == CONTENT
    assert content_of(earlier, "remove it") == content_of(path, "remove it") == earlier.read_bytes()
    assert hashlib.sha256(earlier.read_bytes()).hexdigest() in path.read_text()


@pytest.mark.parametrize("indent", [None, 1, 2])
def test_an_earlier_file_that_holds_a_digest_is_read(tmp_path, indent):
    path = tmp_path / "sources.json"
    content = {"base": {"checkpoint": "tiny", "content": hashlib.sha256(b"weights").hexdigest()}}
    path.write_text(json.dumps(content, indent=indent))
    assert read_checked(path, "remove it") == content


@dataclass
class _Counts:
    episodes: int
    name: str = ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", r"Input should be an object"),
        ("{}", r"episodes: Field required"),
        ('{"episodes": "12"}', r"episodes: Input should be a valid integer"),
        ('{"episodes": true}', r"episodes: Input should be a valid integer"),
        ('{"episodes": 1.5}', r"episodes: Input should be a valid integer"),
        ('{"episodes": 12, "name": null}', r"name: Input should be a valid string"),
        ('{"episodes": 12', r"Expecting"),
    ],
)
def test_content_of_another_kind_is_an_error_that_names_the_key(tmp_path, text, reason):
    path = tmp_path / "counts.json"
    path.write_text(text)
    with pytest.raises(DatasetError, match=f"counts.json is damaged.*{reason}.*; remove it") as error:
        read_checked(path, "remove it", _Counts)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"\xff\xfe{", b"{", b"", b"[" * 100_000])
def test_a_file_that_is_not_json_is_an_error(tmp_path, content):
    path = tmp_path / "counts.json"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"counts.json is damaged"):
        read_checked(path, "remove it")


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(DatasetError, match=r"counts.json is missing; run it again"):
        read_checked(tmp_path / "counts.json", "remove it and run it again")


def test_a_lone_surrogate_and_an_empty_object_are_read_as_they_were_written(tmp_path):
    for content in ({"reply": "a\ud800é\\ud800"}, {}):
        write_checked(tmp_path / "a.json", content)
        assert read_checked(tmp_path / "a.json", "remove it") == content


def test_an_error_while_parsing_names_the_file(tmp_path):
    error = pytest.raises(DatasetError, match=r"a.json is damaged \(KeyError: 'steps'\); remove it")
    with error, parsing(tmp_path / "a.json", "remove it"):
        _ = {}["steps"]
