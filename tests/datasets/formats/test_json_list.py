"""Items of a JSON list know their place in the file."""

import json
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vlm_agent.datasets.formats import json_list
from vlm_agent.datasets.formats.json_list import read_items

VALUES = st.recursive(st.integers() | st.text(max_size=5) | st.none(), lambda inner: st.lists(inner, max_size=3))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(VALUES, min_size=1, max_size=6), st.sampled_from(["", " ", "\n\t"]))
def test_number_offset_and_checksum_are_those_of_the_text_of_the_item(tmp_path, values, space):
    texts = [json.dumps(value, ensure_ascii=False) for value in values]
    path = tmp_path / "list.json"
    path.write_bytes(f"{space}[{space}{f'{space},{space}'.join(texts)}{space}]{space}".encode("utf-8", "replace"))
    items = list(read_items(path))
    data = path.read_bytes()
    assert [item.number for item in items] == list(range(len(values)))
    for item, text in zip(items, texts, strict=True):
        source = text.encode("utf-8", "replace")
        assert data[item.offset :].startswith(source)
        assert item.checksum == zlib.crc32(source) and item.error is None


@pytest.mark.parametrize(
    ("text", "number", "offset", "why"),
    [
        ("[1, 2", 2, 5, "truncated: its list does not end"),
        ("[1 2]", 1, 2, "found '2', expected ','"),
        ("[1, 2] x", 2, 5, "more text"),
        ("x", 0, 0, "found 'x', expected '['"),
        ("[]", 0, 0, "empty"),
    ],
)
def test_the_error_is_numbered_after_the_last_item(tmp_path, text, number, offset, why):
    (tmp_path / "list.json").write_text(text)
    *_, last = read_items(tmp_path / "list.json")
    assert (last.number, last.offset) == (number, offset) and why in last.error


@pytest.mark.parametrize(("limit", "error"), [(9, None), (8, "the file is larger than the limit of 8 bytes")])
def test_a_file_of_as_many_bytes_as_the_limit_is_read(tmp_path, monkeypatch, limit, error):
    monkeypatch.setattr(json_list, "MAX_JSON_BYTES", limit)
    (tmp_path / "list.json").write_text("[1, 2, 3]")
    assert list(read_items(tmp_path / "list.json"))[-1].error == error
