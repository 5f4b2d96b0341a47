"""Drawing actions and annotated elements on screens."""

import json
from collections.abc import Sequence

from PIL import Image, ImageDraw

from vlm_agent.drawing import shapes
from vlm_agent.drawing.shapes import Colour, Point
from vlm_agent.episodes import KINDS_WITH_TEXT, KINDS_WITH_TOUCH, Action, ActionKind, UiElement, element_at

EXPERT: Colour = (0, 138, 72)
PREDICTED: Colour = (222, 0, 120)
"""Green and magenta remain distinguishable for colour-blind readers; interfaces mostly use blue."""

_TEXT_BOX, _ICON_BOX = (0, 110, 200), (200, 30, 130)


def draw_action(
    image: Image.Image, action: Action, colour: Colour, label: str | None = None, elements: Sequence[UiElement] = ()
) -> Image.Image:
    """A copy of `image`, in RGB, with the action on it. Marks scale with the screen.

    A tap or long press is a frame around the one of `elements` that it touches, with ticks above and left of the point,
    or an open ring where `framed_element` has none: the reader looks for the text under it. A swipe is an arrow. Every
    other action is a pill with its description at the lower edge. `label` precedes the description; for gestures it is
    drawn in a small pill next to them, for a long press always.
    """
    if action.kind not in KINDS_WITH_TOUCH:
        words = describe(action)
        return draw_words(image, f"{label}: {words}" if label else words, colour)
    drawn = image.convert("RGB")
    unit = min(drawn.size) / 100
    touch = _pixel(drawn, action.touch_yx)
    top = bottom = touch[1]
    if action.is_swipe:
        shapes.arrow(drawn, touch, _pixel(drawn, action.lift_yx), colour, unit)
    else:
        top, bottom = _draw_touch(drawn, action, elements, colour, True)
    if action.kind is ActionKind.LONG_PRESS:
        label = f"{label}: {describe(action)}" if label else describe(action)
    if label:
        y = bottom + 13 * unit if touch[1] < drawn.height / 2 else top - 13 * unit
        shapes.pill(drawn, label, colour, (touch[0], y), 4.5 * unit)
    return drawn


def framed_element(action: Action, elements: Sequence[UiElement]) -> UiElement | None:
    """The smallest element under the finger, which a mark frames. None where no element is annotated, and where that
    element covers more than `_LARGE` of the screen."""
    element = element_at(elements, action.touch_yx)
    return None if element is None or element.box[2] * element.box[3] > _LARGE else element


def _draw_touch(
    image: Image.Image, action: Action, elements: Sequence[UiElement], colour: Colour, ticks: bool
) -> tuple[float, float]:
    """Marks what is touched, and returns the top and bottom of the element, or of the point, in pixels. `ticks`: beside
    the frame, where the point is."""
    unit, point = min(image.size) / 100, _pixel(image, action.touch_yx)
    element = framed_element(action, elements)
    if element is None:
        shapes.ring(image, point, colour, unit)
        return point[1], point[1]
    y, x, height, width = element.box
    first, second = _pixel(image, (y, x)), _pixel(image, (y + height, x + width))
    shapes.frame(image, first, second, colour, unit, point if ticks else None)
    return min(first[1], second[1]), max(first[1], second[1])


def draw_words(image: Image.Image, words: str, colour: Colour) -> Image.Image:
    """A copy of `image`, in RGB, with words in a pill at the lower edge."""
    drawn = image.convert("RGB")
    unit = min(drawn.size) / 100
    shapes.pill(drawn, words, colour, (drawn.width / 2, drawn.height - 17 * unit), 6 * unit)
    return drawn


def describe_with_place(action: Action, elements: Sequence[UiElement] = ()) -> str:
    """`describe` with the place of a gesture in fractions of the screen: `tap "Buy" at x 0.52, y 0.91`.

    The name is that of the smallest of the `elements` under the touch point, its text or else its type. A swipe has
    none: where it begins says nothing about what it brings into view.
    """
    words = describe(action)
    if action.kind not in KINDS_WITH_TOUCH:
        return words
    if action.is_swipe:
        return f"{words} at {_in_fractions(action.touch_yx)} to {_in_fractions(action.lift_yx)}"
    touched = element_at(elements, action.touch_yx)
    name = "" if touched is None else f" {json.dumps(touched.text or touched.type, ensure_ascii=False)}"
    return f"{words}{name} at {_in_fractions(action.touch_yx)}"


def _in_fractions(point_yx: tuple[float, float]) -> str:
    return f"x {point_yx[1]:.2f}, y {point_yx[0]:.2f}"


def describe(action: Action) -> str:
    """A few words for a reader: `tap`, `swipe up`, `type "…"`, `press back`, `long press`, `complete`, …"""
    if action.is_swipe:
        return f"swipe {action.direction}"
    name = action.name.replace("_", " ")
    if action.kind in KINDS_WITH_TEXT:
        return f"{name} {json.dumps(action.text, ensure_ascii=False)}"
    return f"press {name}" if action.kind.name.startswith("PRESS_") else name


def draw_elements(image: Image.Image, elements: Sequence[UiElement]) -> Image.Image:
    """A copy of `image`, in RGB, with a box around every element and above it the text, or the type of an icon."""
    drawn = image.convert("RGB")
    for element in elements:
        _draw_element(drawn, element)
    return drawn


def draw_touched(image: Image.Image, action: Action, elements: Sequence[UiElement]) -> Image.Image:
    """A copy of `image`, in RGB, with what a tap or long press touches marked in `PREDICTED` and still visible.

    The mark is a box around `framed_element`, or a ring without one. Raises ValueError for an action without a touch
    point.
    """
    if action.kind not in KINDS_WITH_TOUCH:
        raise ValueError(f"{describe(action)} touches no element")
    drawn = image.convert("RGB")
    _draw_touch(drawn, action, elements, PREDICTED, False)
    return drawn


_LARGE = 0.25


def _pixel(image: Image.Image, point_yx: tuple[float, float]) -> Point:
    """(x, y) in pixels, Pillow's order, of a point in screen fractions."""
    return (point_yx[1] * (image.width - 1), point_yx[0] * (image.height - 1))


def _draw_element(image: Image.Image, element: UiElement) -> None:
    unit, is_text = min(image.size) / 100, element.type == "TEXT"
    colour = _TEXT_BOX if is_text else _ICON_BOX
    sides = [(start, start + size) for start, size in zip(element.box[:2], element.box[2:], strict=True)]
    if any(min(side) > 1 or max(side) < 0 for side in sides):
        return
    left, top, right, bottom = shapes.corners(image, element.box)
    draw = ImageDraw.Draw(image)
    draw.rectangle((left, top, right, bottom), outline=colour, width=max(1, round(0.5 * unit)))
    name = element.text if is_text else element.type.removeprefix("ICON_").lower().replace("_", " ")
    letters = shapes.font(max(8, round(2.6 * unit)))
    name = shapes.shorten(name, letters, max(right - left, 12 * unit))
    halo = max(1, round(0.4 * unit))
    draw.text((left, top), name, colour, letters, anchor="lb", stroke_width=halo, stroke_fill=shapes.WHITE)
