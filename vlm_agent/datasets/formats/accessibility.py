"""The accessibility trees of a screen, a protobuf message of android_env, read without its classes.

    Forest { Window windows = 1; }       Window { Rect bounds = 1; string title = 5; Tree tree = 11; }
    Tree   { Node nodes = 1; }           Node   { Rect bounds = 2; string class_name = 3, content_description = 4,
    Rect   { int32 left = 1,                      hint_text = 5, text = 7; bool is_visible_to_user = 23; }
             top = 2, right = 3, bottom = 4; }

(google-deepmind/android_env, `android_accessibility_{forest,window_info,tree,node_info,…}.proto`; fields that are not
read are left out.) Nodes are read in the order in which they are stored, and lists of children are not followed. So
neither loops nor depth cost anything.
"""

from itertools import chain
from typing import NamedTuple

from vlm_agent.datasets.formats.tf_example import ExampleError, as_buffer, messages, wire_fields

MAX_NODES = 1 << 12
MAX_TEXT_BYTES = 1 << 16
"""Forests of more windows and nodes, and nodes with longer texts, are refused, to bound memory."""

_STRINGS = {3: "class_name", 4: "description", 5: "hint", 7: "text"}
_BOUNDS, _IS_VISIBLE = 2, 23
_WINDOW_BOUNDS, _WINDOW_TITLE, _WINDOW_TREE = 1, 5, 11


class Node(NamedTuple):
    """A node, or a window. `box`: left, top, right, bottom in pixels, as published: maybe empty, or off the screen."""

    box: tuple[int, int, int, int]
    text: str = ""
    description: str = ""
    hint: str = ""
    class_name: str = ""
    is_visible: bool = False
    is_window: bool = False


def read_forest(data: bytes | memoryview) -> list[Node]:
    """Every window in order, each followed by its nodes in order. Empty bytes are a forest without windows.

    Raises ExampleError for bytes that are not such a message, texts that are not UTF-8, and for the two limits.
    """
    found: list[Node] = []
    for window in messages(memoryview(data), 1):
        bounds, title, trees = memoryview(b""), "", []
        for number, wire_type, value in wire_fields(window):
            if number == _WINDOW_BOUNDS:
                bounds = as_buffer(value, wire_type)
            elif number == _WINDOW_TITLE:
                title = _text(as_buffer(value, wire_type), "title")
            elif number == _WINDOW_TREE:
                trees.append(as_buffer(value, wire_type))
                _check_count(len(found) + len(trees))
        found.append(Node(_box(bounds), title, is_window=True))
        _check_count(len(found))
        for node in chain.from_iterable(messages(tree, 1) for tree in trees):
            found.append(_node(node))
            _check_count(len(found))
    return found


def _check_count(count: int) -> None:
    if count > MAX_NODES:
        raise ExampleError(f"it has more than {MAX_NODES} windows and nodes")


def _node(view: memoryview) -> Node:
    box, is_visible = (0, 0, 0, 0), False
    texts = dict.fromkeys(_STRINGS.values(), "")
    for number, wire_type, value in wire_fields(view):
        if number == _BOUNDS:
            box = _box(as_buffer(value, wire_type))
        elif number in _STRINGS:
            texts[_STRINGS[number]] = _text(as_buffer(value, wire_type), _STRINGS[number])
        elif number == _IS_VISIBLE:
            is_visible = value == 1
    return Node(box, texts["text"], texts["description"], texts["hint"], texts["class_name"], is_visible)


def _box(view: memoryview) -> tuple[int, int, int, int]:
    sides = [0, 0, 0, 0]
    for number, _, value in wire_fields(view):
        if 1 <= number <= 4:
            if not isinstance(value, int):
                raise ExampleError("the bounds of a node are not whole numbers")
            sides[number - 1] = (value + (1 << 31)) % (1 << 32) - (1 << 31)
    return (sides[0], sides[1], sides[2], sides[3])


def _text(view: memoryview, name: str) -> str:
    if len(view) > MAX_TEXT_BYTES:
        raise ExampleError(f"the {name} of a node has {len(view)} bytes, more than the limit of {MAX_TEXT_BYTES}")
    try:
        return str(view, "utf-8")
    except UnicodeDecodeError as error:
        raise ExampleError(f"the {name} of a node is not UTF-8: {error.reason} at byte {error.start}") from None
