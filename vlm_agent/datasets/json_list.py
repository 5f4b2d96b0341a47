"""A JSON file that is one list, read item by item: damage costs what it hits, and every item's place is known."""

import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vlm_agent.datasets import DatasetError

MAX_JSON_BYTES = 1 << 24
"""A longer file is refused: a step of AitZ takes some 3 KiB, and memory must stay bounded."""

_SPACE = re.compile(r"[ \t\n\r]*")


class JsonItem(NamedTuple):
    """One item of the list: its `value`, or the `error` that keeps it and all behind it from being read.

    `offset` is where its text begins in the file, in bytes; `checksum` is the CRC-32 of that text.
    """

    number: int
    offset: int
    checksum: int = 0
    value: object = None
    error: str | None = None


class _BrokenListError(Exception):
    """Where the next item begins can no longer be known."""


def read_items(path: Path) -> Iterator[JsonItem]:
    """The items in order; where the text stops being a list of JSON, one last item tells so.

    So does an empty list or file, one of more than `MAX_JSON_BYTES`, and one that the system does not let us read.
    Bytes that are not UTF-8 are no damage to the list: they come as lone surrogates in the item's strings.

    Raises DatasetError when `path` is no file.
    """
    if not path.is_file():
        raise DatasetError(f"{path} is not a file; a JSON file is needed")
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
        raise _BrokenListError(f"the file has more than the {MAX_JSON_BYTES} bytes that are accepted")
    return data.decode("utf-8", "surrogateescape")


def _values(text: str) -> Iterator[tuple[int, int, object]]:
    """Where each item begins and ends in the text, and its value."""
    position = _behind(text, 0, "[")
    while True:
        value, end = _parse(text, position)
        yield position, end, value
        position = _skip_space(text, end)
        if text.startswith("]", position):
            break
        position = _behind(text, position, ",")
    if _skip_space(text, position + 1) != len(text):
        raise _BrokenListError("there is more text behind the end of the list")


def _parse(text: str, position: int) -> tuple[object, int]:
    """The value that begins there, and where it ends."""
    if text.startswith("]", position):
        raise _BrokenListError("the list is empty, or ends where another item is due")
    try:
        return json.JSONDecoder().raw_decode(text, position)
    except RecursionError:
        raise _BrokenListError("the item is nested too deep; the rest of the file cannot be read") from None
    except ValueError as error:
        raise _BrokenListError(f"this is no JSON: {error}; the rest of the file cannot be read") from None


def _behind(text: str, position: int, mark: str) -> int:
    """Where the first item behind `mark` begins, which must be what comes next."""
    position = _skip_space(text, position)
    if text.startswith(mark, position):
        return _skip_space(text, position + 1)
    if position == len(text):
        raise _BrokenListError("the file is truncated: its list does not end")
    raise _BrokenListError(f"{text[position]!r} where {mark!r} is due in a list; the rest of the file cannot be read")


def _skip_space(text: str, position: int) -> int:
    return _SPACE.match(text, position).end()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
