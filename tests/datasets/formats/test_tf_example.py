import numpy as np
import pytest
from helpers.data.example_message import Example, example_class, lists_of
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.datasets.formats.tf_example import ExampleError, encode_example, parse_example

_values = st.one_of(
    st.tuples(st.just("bytes"), st.lists(st.binary(max_size=300), max_size=5)),
    st.tuples(st.just("float"), st.lists(st.floats(width=32, allow_nan=False), max_size=40)),
    st.tuples(st.just("int64"), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40)),
)
_features = st.dictionaries(st.text(max_size=20), _values, max_size=6)


def _message(features, message_class=Example):
    message = message_class()
    for name, (kind, values) in features.items():
        getattr(message.features.feature[name], f"{kind}_list").value.extend(values)
    return message


def _plain(parsed):
    return {
        name: (kind, [bytes(v) for v in values] if kind == "bytes" else list(values))
        for name, (kind, values) in parsed.items()
    }


@settings(deadline=None)
@given(_features, st.booleans())
def test_what_protobuf_writes_is_read_the_same_packed_or_not(features, packed):
    message = _message(features, example_class(packed))
    assert _plain(parse_example(message.SerializeToString(), features)) == lists_of(message)


@settings(deadline=None)
@given(st.lists(_values, min_size=2, max_size=4))
def test_of_lists_of_several_kinds_the_last_replaces_those_before_as_in_protobuf(lists):
    parts = b"".join(_message({"a": one}).features.feature["a"].SerializeToString() for one in lists)
    entry = b"\n\x01a\x12" + _varint(len(parts)) + parts
    features = b"\n" + _varint(len(entry)) + entry
    written = b"\n" + _varint(len(features)) + features
    assert _plain(parse_example(written, ["a"])) == lists_of(Example.FromString(written))


def _varint(number):
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(high) if high else bytes([low])


def _encode(features):
    return encode_example(
        {name: np.asarray(v, np.float32) if kind == "float" else v for name, (kind, v) in features.items()}
    )


@settings(deadline=None)
@given(_features)
def test_what_is_written_protobuf_reads_the_same(features):
    features = {name: (kind, values) for name, (kind, values) in features.items() if values}
    assert lists_of(Example.FromString(_encode(features))) == lists_of(_message(features))


@settings(deadline=None)
@given(st.text(max_size=20), _values.filter(lambda value: value[1]))
def test_one_feature_is_written_as_protobuf_does_byte_for_byte(name, value):
    assert _encode({name: value}) == _message({name: value}).SerializeToString()


def test_features_are_written_in_one_order():
    assert encode_example({"b": [1], "a": [b"2"]}) == encode_example({"a": [b"2"], "b": [1]})


@settings(deadline=None)
@given(_features, _features)
def test_parts_of_an_example_that_follow_each_other_are_one_example(first, second):
    payload = _message(first).SerializeToString() + _message(second).SerializeToString()
    assert _plain(parse_example(payload, first | second)) == lists_of(Example.FromString(payload))


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(payload):
    _read_or_refuse(payload)


@settings(deadline=None, max_examples=300)
@given(_features, st.data())
def test_a_damaged_example_is_read_or_refused(features, data):
    payload = bytearray(_message(features).SerializeToString())
    if payload:
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    _read_or_refuse(bytes(payload[: data.draw(st.integers(0, len(payload)))]))


def _read_or_refuse(payload):
    try:
        parse_example(payload, {"a", ""})
    except ExampleError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "only 0 remain"),
        (b"\x0a" + b"\x80" * 11, "not terminated"),
        (b"\x0b", "wire type 3"),
        (b"\x02\x00", "field number 0"),
        (b"\x08\x01", "wire type is 0, expected 2"),
    ],
)
def test_hostile_bytes_are_refused_with_a_reason(payload, reason):
    with pytest.raises(ExampleError, match=reason):
        parse_example(payload, {"a"})


def test_only_wanted_features_are_returned_and_bytes_are_not_copied():
    payload = encode_example({"screen": [b"x" * 1000], "other": [1]})
    features = parse_example(payload, {"screen"})
    assert features.keys() == {"screen"}
    assert np.shares_memory(np.frombuffer(features["screen"].values[0], np.uint8), np.frombuffer(payload, np.uint8))
