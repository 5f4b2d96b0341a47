"""A JSON file with one list, read item by item: items before damage are kept, and each item's offset is known."""

import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vlm_agent.errors import DatasetError

MAX_JSON_BYTES = 1 << 24
"""Longer files are refused to bound memory. A step of AitZ has about 3 KiB."""

_SPACE = re.compile(r"[ \t\n\r]*")


class JsonItem(NamedTuple):
    """One item of the list: its `value`, or the `error` after which nothing can be read.

    `offset` is the first byte of its text in the file, `checksum` the CRC-32 of that text.
    """

    number: int
    offset: int
    checksum: int = 0
    value: object = None
    error: str | None = None


class _BrokenListError(Exception):
    """The start of the next item cannot be determined."""


def read_items(path: Path) -> Iterator[JsonItem]:
    """The items in order. If the text stops being a JSON list, the last item has the error.

    The same applies to an empty list or file, a file larger than `MAX_JSON_BYTES`, and an unreadable file. Bytes that
    are not UTF-8 do not damage the list: they become lone surrogates in the item's strings.

    Raises DatasetError if `path` is not a file.
    """
    if not path.is_file():
        raise DatasetError(f"{path} is not a file; expected a JSON file")
    number, offset, read = 0, 0, 0
    try:
        text = _read_text(path)
        for start, end, value in _values(text):
            offset += len(_bytes(text[read:start]))
            source = _bytes(text[start:end])
            yield JsonItem(number, offset, zlib.crc32(source), value)
            number, offset, read = number + 1, offset + len(source), end
    except _BrokenListError as broken:
        yield JsonItem(number, offset, error=str(broken))


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise _BrokenListError(f"the file cannot be read: {error.strerror}") from None
    if not data:
        raise _BrokenListError("the file is empty")
    if len(data) > MAX_JSON_BYTES:
        raise _BrokenListError(f"the file is larger than the limit of {MAX_JSON_BYTES} bytes")
    return data.decode("utf-8", "surrogateescape")


def _values(text: str) -> Iterator[tuple[int, int, object]]:
    """(start, end, value) of each item; start and end are positions in the text."""
    position = _after(text, 0, "[")
    while True:
        value, end = _parse(text, position)
        yield position, end, value
        position = _skip_space(text, end)
        if text.startswith("]", position):
            break
        position = _after(text, position, ",")
    if _skip_space(text, position + 1) != len(text):
        raise _BrokenListError("the file has more text after the end of the list")


def _parse(text: str, position: int) -> tuple[object, int]:
    """The value at this position, and the position after it."""
    if text.startswith("]", position):
        raise _BrokenListError("the list is empty, or ends where an item is expected")
    try:
        return json.JSONDecoder().raw_decode(text, position)
    except RecursionError:
        raise _BrokenListError("the item is nested too deep; the rest of the file cannot be read") from None
    except ValueError as error:
        raise _BrokenListError(f"invalid JSON: {error}; the rest of the file cannot be read") from None


def _after(text: str, position: int, mark: str) -> int:
    """The position of the item after `mark`, which must be the next character that is not white space."""
    position = _skip_space(text, position)
    if text.startswith(mark, position):
        return _skip_space(text, position + 1)
    if position == len(text):
        raise _BrokenListError("the file is truncated: its list does not end")
    raise _BrokenListError(f"found {text[position]!r}, expected {mark!r}; the rest of the file cannot be read")


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
