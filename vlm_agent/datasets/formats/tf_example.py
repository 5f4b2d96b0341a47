"""`tf.train.Example`, read and written without TensorFlow: a small protobuf wire codec. `accessibility` reads another
message with it.

    Example  { Features features = 1; }
    Features { map<string, Feature> feature = 1; }          a map entry is { string key = 1; Feature value = 2; }
    Feature  { oneof { BytesList = 1; FloatList = 2; Int64List = 3; } }        each { repeated … value = 1; }

(TensorFlow, `tensorflow/core/example/{example,feature}.proto`.) A protobuf library copies every value. Here a screen
of several megabytes stays in the buffer of its record, and fields that are not needed are skipped.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence, Sized
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np

from vlm_agent.errors import UserError

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_KINDS = {1: "bytes", 2: "float", 3: "int64"}
_MAX_FIELD_NUMBER = (1 << 29) - 1

MAX_VALUES = 1 << 17
"""Features with more values than this are refused, to bound memory: a value of two bytes becomes an object. Packed
floats are not limited."""

Values = Sequence[bytes] | Sequence[memoryview] | Sequence[int] | np.ndarray
"""The values of one feature to write. Memoryviews are of single bytes."""


T = TypeVar("T")


class ExampleError(UserError):
    """The bytes are not the protobuf message that is expected."""


class Feature(NamedTuple):
    """One field. `kind` is bytes, float, int64, or None for an empty feature.

    `values` are memoryviews into the payload (bytes), a float32 array (float) or ints (int64).
    """

    kind: str | None
    values: list[memoryview] | list[int] | np.ndarray


def parse_example(payload: bytes, keys: Collection[str]) -> dict[str, Feature]:
    """The features of `keys` that the example contains. The last value of a repeated key is used, as in protobuf.

    Raises ExampleError for bytes that are not a well-formed Example.
    """
    names = {name.encode(): name for name in keys}
    features = {}
    for features_view in messages(memoryview(payload), 1):
        for entry in messages(features_view, 1):
            key, value = _map_entry(entry)
            if key in names:
                try:
                    features[names[key]] = _parse_feature(value)
                except ExampleError as error:
                    raise ExampleError(f"{names[key]}: {error}") from None
    return features


def encode_example(features: Mapping[str, Values]) -> bytes:
    """The bytes of an Example. Lists of bytes, lists of ints and float32 arrays become the three kinds of list.

    Keys are written in sorted order, as protobuf's deterministic mode does.
    """
    parts: list[bytes | memoryview] = []
    for key in sorted(features):
        parts += _delimited(1, [*_delimited(1, [key.encode()]), *_delimited(2, _encode_feature(features[key]))])
    return b"".join(_delimited(1, parts))


def wire_fields(view: memoryview) -> Iterator[tuple[int, int, memoryview | int]]:
    """(field number, wire type, value) of each field. The value of a varint is an int, any other is its bytes.

    Nearly all of the about two hundred tags and lengths of a record are one byte, so those are decoded inline.
    """
    position, end = 0, len(view)
    value: memoryview | int
    while position < end:
        tag = view[position]
        if tag < 0x80:
            position += 1
        else:
            tag, position = _varint(view, position)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number <= _MAX_FIELD_NUMBER:
            raise ExampleError(f"field number {number} is invalid")
        if wire_type == _VARINT:
            value, position = _varint(view, position)
        else:
            if wire_type == _LENGTH_DELIMITED and position < end and view[position] < 0x80:
                length, start = view[position], position + 1
            else:
                length, start = _length(view, position, wire_type)
            position = start + length
            if position > end:
                raise ExampleError(f"a field has {length} bytes, but only {end - start} remain")
            value = view[start:position]
        yield number, wire_type, value


def _length(view: memoryview, position: int, wire_type: int) -> tuple[int, int]:
    if wire_type == _LENGTH_DELIMITED:
        return _varint(view, position)
    if wire_type == _FIXED64:
        return 8, position
    if wire_type == _FIXED32:
        return 4, position
    raise ExampleError(f"wire type {wire_type} is unknown")


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    """An unsigned 64-bit number and the position after it."""
    result = 0
    for index, byte in enumerate(view[position : position + 10]):
        result |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, position + index + 1
    raise ExampleError("a varint is not terminated")


def messages(view: memoryview, field_number: int) -> Iterator[memoryview]:
    for number, wire_type, value in wire_fields(view):
        if number == field_number:
            yield as_buffer(value, wire_type)


def as_buffer(value: memoryview | int, wire_type: int) -> memoryview:
    """The value of a length-delimited field. Raises ExampleError for a field of another wire type."""
    if wire_type != _LENGTH_DELIMITED or isinstance(value, int):
        raise ExampleError(f"wire type is {wire_type}, expected {_LENGTH_DELIMITED}")
    return value


def _map_entry(view: memoryview) -> tuple[bytes, list[memoryview]]:
    """The key of an entry, and the parts of its value, which protobuf allows to be split."""
    key, parts = b"", []
    for number, wire_type, value in wire_fields(view):
        if number == 1:
            key = bytes(as_buffer(value, wire_type))
        elif number == 2:
            parts.append(as_buffer(value, wire_type))
            _check_count(parts)
    return key, parts


def _parse_feature(parts: list[memoryview]) -> Feature:
    kind: str | None = None
    lists: list[memoryview] = []
    for part in parts:
        for number, wire_type, value in wire_fields(part):
            if number in _KINDS:
                # In a oneof, a value of a different kind replaces the earlier value; the same kind is appended.
                lists = lists if kind == _KINDS[number] else []
                kind = _KINDS[number]
                lists.append(as_buffer(value, wire_type))
                _check_count(lists)
    if kind == "bytes":
        return Feature(kind, _limited(value for view in lists for value in messages(view, 1)))
    if kind == "float":
        return Feature(kind, _floats(lists))
    values = (value for view in lists for value in _varints_of(view))
    return Feature(kind, _limited(value - (1 << 64) if value >> 63 else value for value in values))


def _limited(values: Iterator[T]) -> list[T]:
    """All values. Raises ExampleError if there are more than `MAX_VALUES`."""
    found = list(islice(values, MAX_VALUES + 1))
    _check_count(found)
    return found


def _check_count(values: Sized) -> None:
    if len(values) > MAX_VALUES:
        raise ExampleError(f"a feature has more than {MAX_VALUES} values")


def _floats(lists: list[memoryview]) -> np.ndarray:
    """Packed or separate values; both have four little-endian bytes per value."""
    data = bytearray()
    for view in lists:
        for number, wire_type, value in wire_fields(view):
            if number == 1:
                if isinstance(value, int) or wire_type == _FIXED64 or len(value) % 4:
                    raise ExampleError("a list of floats has an invalid number of bytes")
                data += value
    return np.frombuffer(data, "<f4").astype(np.float32, copy=False)


def _varints_of(view: memoryview) -> Iterator[int]:
    """Packed or separate values."""
    for number, wire_type, value in wire_fields(view):
        if number != 1:
            continue
        if isinstance(value, int):
            yield value
            continue
        packed, position = as_buffer(value, wire_type), 0
        while position < len(packed):
            one, position = _varint(packed, position)
            yield one


def _encode_feature(values: Values) -> list[bytes | memoryview]:
    if isinstance(values, np.ndarray):
        return _delimited(2, _packed(values.astype("<f4").tobytes()))
    integers = [value & 0xFFFF_FFFF_FFFF_FFFF for value in values if isinstance(value, int)]
    if integers:
        return _delimited(3, _packed(b"".join(map(_encode_varint, integers))))
    buffers = [value for value in values if not isinstance(value, int)]
    return _delimited(1, [part for value in buffers for part in _delimited(1, [value])])


def _packed(data: bytes) -> list[bytes | memoryview]:
    return _delimited(1, [data]) if data else []


def _delimited(number: int, parts: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """A length-delimited field as a list of parts. They are joined once at the end, so a screen is copied once."""
    length = sum(len(part) for part in parts)
    return [bytes((number << 3 | _LENGTH_DELIMITED,)), _encode_varint(length), *parts]


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
