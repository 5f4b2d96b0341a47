"""The current screen of a simulated phone as nodes of an accessibility service."""

from collections.abc import Iterator
from dataclasses import dataclass

from vlm_agent.episodes import UiElement
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon.handset import Handset

FIELD = "EditText"

_ROOT, _TEXT, _ICON, _SWITCH = "FrameLayout", "TextView", "ImageView", "Switch"
_WITHIN = {"edit_text": FIELD, "button": "Button"}
"""Kind of widget → class of the text in it."""

_SYSTEM = "com.android.systemui"
_OF_SYSTEM = ("system:", "quick:", "notice:")
"""How keys of targets of the system UI start."""

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Node:
    """`bounds`: (left, top, right, bottom) in pixels. `kind`: the name of a class of `android.widget`. `checked`: None
    for a node without such a state. `hint`: the text of an empty field, which is then also its `text`. `is_clickable`:
    whether a tap in its middle has an effect."""

    bounds: tuple[int, int, int, int]
    kind: str
    package: str
    text: str = ""
    description: str = ""
    hint: str = ""
    checked: bool | None = None
    is_clickable: bool = False
    is_focused: bool = False
    is_selected: bool = False
    is_scrollable: bool = False


def screen_nodes(handset: Handset) -> Iterator[Node]:
    """A node of the whole screen, then one for each text and icon, then one for each switch."""
    phone = handset.phone
    phone.canvas()  # drawing a page measures how far it scrolls
    can_scroll = phone.app(phone.front).route.limit > 0 and phone.popup is None and not phone.shade
    package = phone.activity.partition("/")[0]
    yield Node((0, 0, phone.size[1], phone.size[0]), _ROOT, package, is_scrollable=can_scroll)
    for element in phone.elements():
        yield _of_element(handset, element)
    for widget in phone.widgets():
        if widget.kind == "switch":
            package, is_clickable, _ = _under(handset, widget.box)
            bounds = _pixels(widget.box, phone.size)
            yield Node(bounds, _SWITCH, package, checked=widget.on, is_clickable=is_clickable)


def _of_element(handset: Handset, element: UiElement) -> Node:
    phone, box = handset.phone, element.box
    package, is_clickable, key = _under(handset, box)
    bounds = _pixels(box, phone.size)
    if element.type != "TEXT":
        description = element.type.removeprefix("ICON_").lower().replace("_", " ")
        return Node(bounds, _ICON, package, description=description, is_clickable=is_clickable)
    kind = next((_WITHIN[w.kind] for w in phone.widgets() if w.kind in _WITHIN and _holds(w.box, box)), _TEXT)
    is_field = kind == FIELD
    is_empty = is_field and not phone.app(phone.front).fields.get(key, "")
    return Node(
        bounds,
        kind,
        package,
        text=element.text,
        hint=element.text if is_empty else "",
        is_clickable=is_clickable,
        is_focused=is_field and phone.focus is not None and key == phone.focus,
        is_selected=any(tab.active and tab.label == element.text and tab.box == bounds for tab in phone.tabs()),
    )


def _under(handset: Handset, box: Box) -> tuple[str, bool, str]:
    """(package, whether a tap has an effect, key of the target) in the middle of a box."""
    phone = handset.phone
    y, x = UiElement(box).centre_yx
    target = phone.target_at(y, x)
    key = "" if target is None else target.key
    is_clickable = target is not None and target.on_tap is not None
    return _package(phone, key, y), is_clickable, key


def _package(phone: SimulatedPhone, key: str, y: float) -> str:
    bars = [widget.box for widget in phone.widgets() if widget.kind in ("status_bar", "navigation_bar")]
    is_in_bar = any(top <= y < top + height for top, _, height, _ in bars)
    is_system = phone.shade or is_in_bar or key.startswith(_OF_SYSTEM)
    return _SYSTEM if is_system else phone.activity.partition("/")[0]


def _holds(outer: Box, box: Box) -> bool:
    """Whether the middle of `box` lies in `outer`."""
    y, x = UiElement(box).centre_yx
    top, left, height, width = outer
    return top <= y < top + height and left <= x < left + width


def _pixels(box: Box, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """(left, top, right, bottom); `size` is (height, width)."""
    y, x, height, width = box
    return (round(x * size[1]), round(y * size[0]), round((x + width) * size[1]), round((y + height) * size[0]))
