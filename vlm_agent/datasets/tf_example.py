"""`tf.train.Example`, read and written without TensorFlow: a small protobuf wire codec for this one message.

    Example  { Features features = 1; }
    Features { map<string, Feature> feature = 1; }          a map entry is { string key = 1; Feature value = 2; }
    Feature  { oneof { BytesList = 1; FloatList = 2; Int64List = 3; } }        each { repeated … value = 1; }

(TensorFlow, `tensorflow/core/example/{example,feature}.proto`.) Written by hand because a protobuf library copies every
value: here a screen of several megabytes stays where the record was read to, and unwanted fields are stepped over.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_KINDS = {1: "bytes", 2: "float", 3: "int64"}
_MAX_FIELD_NUMBER = (1 << 29) - 1


class ExampleError(ValueError):
    """The bytes are no `tf.train.Example`."""


class Feature(NamedTuple):
    """One field: `kind` is bytes, float, int64, or None for a feature that holds nothing.

    `values` are memoryviews into the payload (bytes), a float32 array (float) or ints (int64).
    """

    kind: str | None
    values: list[memoryview] | list[int] | np.ndarray


def parse_example(payload: bytes, wanted: Collection[str]) -> dict[str, Feature]:
    """The wanted features that the example holds. A key that appears twice counts as its last, as in protobuf.

    Raises ExampleError for bytes that are not a well-formed Example.
    """
    names = {name.encode(): name for name in wanted}
    features = {}
    for features_view in _messages(memoryview(payload), 1):
        for entry in _messages(features_view, 1):
            key, value = _map_entry(entry)
            if key in names:
                features[names[key]] = _parse_feature(value)
    return features


def encode_example(features: Mapping[str, Sequence[bytes] | Sequence[int] | np.ndarray]) -> bytes:
    """The bytes of an Example: lists of bytes, lists of ints and float32 arrays become the three kinds of list.

    Keys are written in sorted order, as protobuf's deterministic mode does.
    """
    entries = (_delimited(1, _entry(key.encode(), features[key])) for key in sorted(features))
    return b"".join(_delimited(1, [part for entry in entries for part in entry]))


def _fields(view: memoryview) -> Iterator[tuple[int, int, memoryview | int]]:
    """(field number, wire type, value) of a message; a varint is its number, everything else its bytes.

    Nearly all tags and lengths are one byte, and those are read in place: a record has some two hundred.
    """
    position, end = 0, len(view)
    while position < end:
        tag = view[position]
        if tag < 0x80:
            position += 1
        else:
            tag, position = _varint(view, position)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number <= _MAX_FIELD_NUMBER:
            raise ExampleError(f"field number {number} does not exist")
        if wire_type == _VARINT:
            value, position = _varint(view, position)
        else:
            if wire_type == _LENGTH_DELIMITED and position < end and view[position] < 0x80:
                length, start = view[position], position + 1
            else:
                length, start = _length(view, position, wire_type)
            position = start + length
            if position > end:
                raise ExampleError(f"a field of {length} bytes where {end - start} are left")
            value = view[start:position]
        yield number, wire_type, value


def _length(view: memoryview, position: int, wire_type: int) -> tuple[int, int]:
    if wire_type == _LENGTH_DELIMITED:
        return _varint(view, position)
    if wire_type == _FIXED64:
        return 8, position
    if wire_type == _FIXED32:
        return 4, position
    raise ExampleError(f"wire type {wire_type} is not used in an Example")


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    """An unsigned 64-bit number and the position behind it."""
    result = 0
    for index, byte in enumerate(view[position : position + 10]):
        result |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, position + index + 1
    raise ExampleError("a number that does not end")


def _messages(view: memoryview, wanted: int) -> Iterator[memoryview]:
    for number, wire_type, value in _fields(view):
        if number == wanted:
            yield _expect(value, wire_type, _LENGTH_DELIMITED)


def _expect(value: memoryview, wire_type: int, expected: int) -> memoryview:
    if wire_type != expected:
        raise ExampleError(f"wire type {wire_type} where {expected} is expected")
    return value


def _map_entry(view: memoryview) -> tuple[bytes, list[memoryview]]:
    """The key of an entry, and the parts of its value, which protobuf lets one split."""
    key, parts = b"", []
    for number, wire_type, value in _fields(view):
        if number == 1:
            key = bytes(_expect(value, wire_type, _LENGTH_DELIMITED))
        elif number == 2:
            parts.append(_expect(value, wire_type, _LENGTH_DELIMITED))
    return key, parts


def _parse_feature(parts: list[memoryview]) -> Feature:
    kind, lists = None, []
    for part in parts:
        for number, wire_type, value in _fields(part):
            if number in _KINDS:
                # A oneof: another kind replaces what was there, the same kind adds to it.
                lists = lists if kind == _KINDS[number] else []
                kind = _KINDS[number]
                lists.append(_expect(value, wire_type, _LENGTH_DELIMITED))
    if kind == "bytes":
        return Feature(kind, [value for view in lists for value in _messages(view, 1)])
    if kind == "float":
        return Feature(kind, _floats(lists))
    return Feature(kind, _ints(lists))


def _floats(lists: list[memoryview]) -> np.ndarray:
    """Packed or one by one, both are the same four little-endian bytes a value."""
    data = bytearray()
    for view in lists:
        for number, wire_type, value in _fields(view):
            if number == 1:
                if wire_type != _FIXED32 and (wire_type != _LENGTH_DELIMITED or len(value) % 4):
                    raise ExampleError("a list of floats whose bytes are no floats")
                data += value
    return np.frombuffer(data, "<f4").astype(np.float32, copy=False)


def _ints(lists: list[memoryview]) -> list[int]:
    values = []
    for view in lists:
        for number, wire_type, value in _fields(view):
            if number != 1:
                continue
            if wire_type == _VARINT:
                values.append(value)
            else:
                values.extend(_packed_varints(_expect(value, wire_type, _LENGTH_DELIMITED)))
    return [value - (1 << 64) if value >> 63 else value for value in values]


def _packed_varints(view: memoryview) -> Iterator[int]:
    position = 0
    while position < len(view):
        value, position = _varint(view, position)
        yield value


def _entry(key: bytes, values: Sequence[bytes] | Sequence[int] | np.ndarray) -> list[bytes]:
    return [*_delimited(1, [key]), *_delimited(2, _encode_feature(values))]


def _encode_feature(values: Sequence[bytes] | Sequence[int] | np.ndarray) -> list[bytes]:
    if isinstance(values, np.ndarray):
        return _delimited(2, _packed(values.astype("<f4").tobytes()))
    if len(values) and isinstance(values[0], int):
        return _delimited(3, _packed(b"".join(_encode_varint(value & 0xFFFF_FFFF_FFFF_FFFF) for value in values)))
    return _delimited(1, [part for value in values for part in _delimited(1, [value])])


def _packed(data: bytes) -> list[bytes]:
    return _delimited(1, [data]) if data else []


def _delimited(number: int, parts: list[bytes]) -> list[bytes]:
    """A length-delimited field as a list of pieces, joined once at the end so that a screen is copied once."""
    length = sum(len(part) for part in parts)
    return [bytes((number << 3 | _LENGTH_DELIMITED,)), _encode_varint(length), *parts]


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
