"""The reader of accessibility trees: order, limits, and damage. `golden/agents_2025_data.py` compares real writing."""

import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_agent.datasets.formats.accessibility import MAX_NODES, MAX_TEXT_BYTES, Node, read_forest
from vlm_agent.datasets.formats.tf_example import ExampleError


def varint(number: int) -> bytes:
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value % (1 << 64))
    return varint(number << 3 | 2) + varint(len(value)) + value


def node(box=(), text: str = "", visible: bool = True, children=()) -> bytes:
    return (
        field(2, rect(box))
        + field(7, text.encode())
        + field(23, int(visible))
        + field(25, b"".join(varint(child) for child in children))
    )


def rect(box) -> bytes:
    return b"".join(field(number, side) for number, side in enumerate(box, 1))


def forest(*windows) -> bytes:
    """Each window is its box and its nodes."""
    return b"".join(
        field(1, field(1, rect(box)) + field(11, b"".join(field(1, one) for one in nodes))) for box, nodes in windows
    )


_boxes = st.tuples(*[st.integers(-(2**31), 2**31 - 1)] * 4)
_nodes = st.lists(st.tuples(_boxes, st.text(max_size=9), st.booleans()), max_size=4)


@settings(deadline=None)
@given(st.lists(st.tuples(_boxes, _nodes), max_size=3))
def test_windows_and_nodes_are_read_in_order_with_their_boxes(windows):
    data = forest(*((box, [node(*one) for one in nodes]) for box, nodes in windows))
    expected = []
    for box, nodes in windows:
        expected.append(Node(box, is_window=True))
        expected += [Node(box, text, is_visible=visible) for box, text, visible in nodes]
    assert read_forest(data) == expected


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 60), st.integers(0, 255))
def test_damage_is_an_error_of_one_type(noise, place, byte):
    whole = bytearray(forest(((0, 0, 9, 9), [node((1, 2, 3, 4), "text")])))
    whole[place % len(whole)] = byte
    for data in (noise, bytes(whole), bytes(whole[:place])):
        with suppress(ExampleError):
            read_forest(data)


def test_children_in_a_loop_and_a_forest_without_windows_are_read():
    looped = forest(((0, 0, 9, 9), [node((0, 0, 5, 5), children=[1]), node((0, 0, 4, 4), children=[0])]))
    assert [one.box for one in read_forest(looped)] == [(0, 0, 9, 9), (0, 0, 5, 5), (0, 0, 4, 4)]
    assert read_forest(b"") == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (forest(((), [b""] * MAX_NODES)), f"more than {MAX_NODES} windows and nodes"),
        (forest(*[((), [])] * (MAX_NODES + 1)), f"more than {MAX_NODES} windows and nodes"),
        (forest(((), [node(text="x" * (MAX_TEXT_BYTES + 1))])), f"the text of a node has {MAX_TEXT_BYTES + 1} bytes"),
        (forest(((), [field(7, b"\xff")])), "the text of a node is not UTF-8"),
        (forest(((), [field(2, field(1, b"9"))])), "not whole numbers"),
    ],
)
def test_a_limit_or_an_unreadable_value_is_named(data, reason):
    with pytest.raises(ExampleError, match=reason):
        read_forest(data)


def test_messages_within_messages_cost_nothing():
    nested = b""
    for _ in range(3000):
        nested = field(24, nested)
    started = time.process_time()
    assert len(read_forest(forest(((), [nested])))) == 2
    assert time.process_time() - started < 1
