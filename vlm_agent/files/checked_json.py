"""JSON files whose damage is noticed: a file records the SHA-256 of its content, and a reader compares it.

The first key of such a file is `checksum`, on a line of its own:

    {
     "checksum": "sha256:7f83b1657ff1fc53b92dc18148a1d65dfc2d4b1fa3d677284addd200126d9069",
     "episodes": 12
    }

It is the SHA-256 of the file without this line. Other files refer to one by that digest (`content_of`). A user who
edits a file removes the line, and other programs write none; such files are read without the check.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from vlm_agent.errors import DatasetError, remedy_of_missing
from vlm_agent.files import atomic_write

CHECKSUM = "checksum"
"""The first key of a checked file."""

_LINE = re.compile(rb'\A\{\n +"checksum": "sha256:([0-9a-f]{64})",\n')
_OPENING = b"{\n"

_TRACES = (b'"checksum"', b"sha256:")
_HEAD = 256
"""A line that is damaged itself leaves one of `_TRACES` in so many bytes at the start, or most of its digits."""

_LINE_LENGTH, _DIGITS = 110, 56

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""Pydantic's parser refuses a lone one, which `json` accepts."""


def write_checked(path: Path, content: Mapping[str, Any], indent: int = 1) -> None:
    """Writes a JSON object with its checksum, atomically. An empty one has no checksum."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(checked_bytes(content, indent))


def checked_bytes(content: Mapping[str, Any], indent: int = 1) -> bytes:
    """The content of the file that `write_checked` writes."""
    text = json.dumps(content, indent=indent, ensure_ascii=False) + "\n"
    plain = _SURROGATE.sub(_escaped, text).encode()  # a reply may hold a lone surrogate, which UTF-8 cannot
    if content:
        line = f'{" " * indent}"checksum": "sha256:{hashlib.sha256(plain).hexdigest()}",\n'
        plain = _OPENING + line.encode() + plain.removeprefix(_OPENING)
    return plain


def read_checked(path: Path, remedy: str, kind: Any = None) -> Any:
    """The object in a JSON file, without its checksum.

    `remedy`: what to do about damage, as the end of an error. `kind`: a type by which pydantic checks the object. Files
    without a checksum need it, because their content may be anything.

    Raises DatasetError naming the file where it is missing, damaged, edited or of another kind.
    """
    plain = content_of(path, remedy)
    try:
        content = json.loads(plain)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is damaged ({error}); {remedy}") from None
    if kind is not None:
        check_kind(plain, kind, path, remedy)
    return content


def check_kind(text: bytes, kind: Any, path: Path, remedy: str) -> None:
    """Raises DatasetError naming `path`, from which the JSON `text` is, if it is not of the type `kind`."""
    if (reason := kind_problem(text, kind)) is not None:
        raise DatasetError(f"{path} is damaged ({reason}); {remedy}")


def kind_problem(text: bytes, kind: Any) -> str | None:
    """Why the JSON `text` is not of the type `kind`: the first key that is wrong, and how; None if it is."""
    try:
        _adapter(kind).validate_json(_ESCAPED_SURROGATE.sub(rb"\\u0020", text), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
    return None


@contextmanager
def parsing(path: Path, remedy: str) -> Iterator[None]:
    """In the block, a key that the content of `path` lacks, or that holds something else, raises DatasetError naming
    the file. For content that is too varied for a `kind`. The block must only parse: a bug in it reads the same.
    """
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise DatasetError(f"{path} is damaged ({reason}); {remedy}") from None


def content_of(path: Path, remedy: str) -> bytes:
    """The bytes of a JSON file without the line of its checksum, which identify its content.

    Raises DatasetError naming the file where it is missing, or differs from its checksum.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing; {remedy_of_missing(remedy)}") from None
    line = _LINE.match(content)
    if line is None:
        if _has_traces(content):
            raise DatasetError(_difference(path, remedy))
        return content
    plain = _OPENING + content[line.end() :]
    if hashlib.sha256(plain).hexdigest().encode() != line[1]:
        raise DatasetError(_difference(path, remedy))
    return plain


def _has_traces(content: bytes) -> bool:
    """Whether a file whose first key is no checksum lost one. No file has a digest as the value of its first
    key."""
    first_key = content[len(_OPENING) : _LINE_LENGTH].partition(b"\n")[0] if content.startswith(_OPENING) else b""
    digits = sum(byte in b"0123456789abcdef" for byte in first_key)
    return digits >= _DIGITS or any(trace in content[:_HEAD] for trace in _TRACES)


def _difference(path: Path, remedy: str) -> str:
    return (
        f"{path} differs from its checksum: it is damaged, or was edited; {remedy}. To keep an edit, remove the line "
        '"checksum" from it'
    )


def _escaped(surrogate: re.Match[str]) -> str:
    return f"\\u{ord(surrogate[0]):04x}"


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
