"""Texts and widgets → parts: which text names which widget (VisionTasker, section 4.3.1).

The paper matches by distance below a maximum and by alignment. Its distances are not published; the ones here are ours.
All lengths are in widths of the screen, so that a tall screen does not stretch them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vlm_agent.episodes import Widget
from vlm_agent.screens.seen import Part, Rectangle, Text, hull, reading_order

BAR = "status_bar"
"""It takes in all that lies in it: clock, signal and battery are of no use to a planner one by one."""

CONTROLS = ("seek_bar", "rating_bar", "check_box", "radio_group", "spinner", "switch")
"""They come before icons where a text may name either: the label of a row names its switch."""

LABEL_LEFT = ("seek_bar", "rating_bar", "check_box", "spinner", "switch")
"""Their label may be far away at the other end of their row."""

LABEL_RIGHT = ("button", "image", "check_box", "radio_group", "rating_bar", "spinner")

LABEL_UNDER = ("button", "image")

LABEL_ABOVE = ("edit_text", "seek_bar", "spinner")

PICTURE, TILE = 0.3, 0.6
"""An image higher and wider than `PICTURE` is a picture: its texts are parts of their own. One up to `TILE` wide is a
tile of a gallery or a shop, whose name is under it, in the middle or at the left."""

COVERED = 0.4
"""An image whose area is covered by texts to this share is those texts."""

FILLED = 0.5
"""A single character whose box covers a button to this share is the button's icon, misread. A key has a margin."""

SAME = 0.7
"""Two widgets are one if their intersection over union is larger."""

HELD: Mapping[str, tuple[str, ...]] = {BAR: (), "button": ("image",)}
"""A widget of such a kind holds those of these kinds (none: of every kind) that lie in it to the share `WITHIN`."""

WITHIN = 0.9

UNDER, BESIDE, ABOVE = 0.05, 0.1, 0.04
"""Largest gap to a text under, beside and above a widget. Android's lists have 0.08 between icon and text."""

APP_BAR = 0.2
"""Icons that begin above this are in the app bar, whose title is no label of its buttons."""

ALIGNED = 0.04
"""Largest distance of two centres, or of two left edges, that are aligned."""

LINES = 3
"""At most so many lines name one widget by standing under it or beside it."""

Place = Literal["inside", "beside", "left", "under", "above"]
"""Where a text is, seen from its widget; `beside` is on its right."""


@dataclass(frozen=True, slots=True)
class Match:
    """The texts that name a widget, by index, and where those outside of it are."""

    widget: int
    texts: tuple[int, ...]
    place: Place


def match(texts: Sequence[Text], widgets: Sequence[Widget], size: tuple[int, int]) -> list[Match]:
    """The texts of each widget that has some. Every text belongs to at most one widget. `size`: (height, width)."""
    height = size[0] / size[1]
    words = [Rectangle.of(text.box, height) for text in texts]
    boxes = [Rectangle.of(widget.box, height) for widget in widgets]
    places: dict[int, Place] = {}
    owners = {widget: _in_order(found, texts) for widget, found in _inside(words, boxes, widgets).items()}
    free = set(range(len(texts))).difference(*owners.values())
    # A picture may show a text and have a label, such as the letter on an avatar and the name beside it.
    closed = {widget for widget in owners if widgets[widget].kind != "image"}
    for candidate in sorted(_near(words, boxes, widgets, free)):
        if candidate.text in free and candidate.widget not in closed:
            lines = _with_lines(candidate, words, boxes[candidate.widget], free)
            free.difference_update(lines)
            closed.add(candidate.widget)
            owners.setdefault(candidate.widget, []).extend(_in_order(lines, texts))
            places[candidate.widget] = candidate.place
    return [Match(widget, tuple(found), places.get(widget, "inside")) for widget, found in sorted(owners.items())]


def make_parts(texts: Sequence[Text], widgets: Sequence[Widget], size: tuple[int, int]) -> tuple[Part, ...]:
    """Every widget with its texts, and every other text alone, numbered in reading order.

    An image that shows hardly more than texts is not a part: its texts are. Of widgets that are in the same place only
    the most certain is a part. An image in a button, and anything but texts in the status bar, belongs to it. A single
    character that fills a button is an icon that was misread: a magnifier as Q, three lines as 三.
    """
    texts = [text for text in texts if not _is_misread_icon(text, widgets)]
    widgets = _distinct([widget for widget in widgets if not _is_text(widget, texts)])
    matches = match(texts, widgets, size)
    by_widget = {found.widget: found for found in matches}
    used = {text for found in matches for text in found.texts}
    parts = [_part(widget, by_widget.get(index), texts) for index, widget in enumerate(widgets)]
    parts += [Part(0, "text", text.box, text.text) for index, text in enumerate(texts) if index not in used]
    order = reading_order([part.box for part in parts])
    return tuple(replace(parts[index], id=number) for number, index in enumerate(order))


def _distinct(widgets: Sequence[Widget]) -> list[Widget]:
    """The widgets that are parts, in their order."""
    boxes = [Rectangle.of(widget.box, 1) for widget in widgets]
    kept: list[int] = []
    for index in sorted(range(len(widgets)), key=lambda index: (-widgets[index].score, index)):
        if not any(boxes[index].overlap(boxes[other]) > SAME for other in kept):
            kept.append(index)
    holders = [index for index in kept if widgets[index].kind in HELD]
    return [
        widgets[index]
        for index in sorted(kept)
        if not any(_holds(widgets, boxes, holder, index) for holder in holders if holder != index)
    ]


def _holds(widgets: Sequence[Widget], boxes: Sequence[Rectangle], holder: int, index: int) -> bool:
    is_within = boxes[index].shared(boxes[holder]) >= WITHIN * boxes[index].area
    kinds = HELD[widgets[holder].kind]
    return is_within and (not kinds or widgets[index].kind in kinds) and boxes[index].area < boxes[holder].area


def _is_text(widget: Widget, texts: Sequence[Text]) -> bool:
    if widget.kind != "image":
        return False
    box = Rectangle.of(widget.box, 1)
    return sum(box.shared(Rectangle.of(text.box, 1)) for text in texts) >= COVERED * box.area


def _is_misread_icon(text: Text, widgets: Sequence[Widget]) -> bool:
    if len(text.text.strip()) != 1:
        return False
    box = Rectangle.of(text.box, 1)
    return any(
        box.holds(button.centre) and box.shared(button) >= FILLED * button.area
        for button in (Rectangle.of(widget.box, 1) for widget in widgets if widget.kind == "button")
    )


def _part(widget: Widget, found: Match | None, texts: Sequence[Text]) -> Part:
    if found is None:
        return Part(0, widget.kind, widget.box, on=widget.on)
    words = [texts[index] for index in found.texts]
    # An icon and the text beside it are one row. A touch on the name of an app, or on the label of a switch, may do
    # something else than one on the widget.
    is_row = found.place == "beside" and widget.kind not in CONTROLS
    box = hull([widget.box, *(text.box for text in words)]) if is_row else widget.box
    return Part(0, widget.kind, box, " ".join(text.text for text in words), on=widget.on)


def _in_order(found: Sequence[int], texts: Sequence[Text]) -> list[int]:
    return [found[index] for index in reading_order([texts[text].box for text in found])]


def _inside(words: Sequence[Rectangle], boxes: Sequence[Rectangle], widgets: Sequence[Widget]) -> dict[int, list[int]]:
    """Widget → the texts whose centre lies in it and in no smaller widget."""
    owners: dict[int, list[int]] = {}
    for text, word in enumerate(words):
        around = [index for index, box in enumerate(boxes) if box.holds(word.centre) and _may_hold(widgets[index], box)]
        if around:
            owners.setdefault(min(around, key=lambda index: (boxes[index].area, index)), []).append(text)
    return owners


def _may_hold(widget: Widget, box: Rectangle) -> bool:
    return widget.kind != "navigation_bar" and not (widget.kind == "image" and _is_picture(box))


def _is_picture(box: Rectangle) -> bool:
    return box.height > PICTURE and box.width > PICTURE


@dataclass(frozen=True, slots=True, order=True)
class _Candidate:
    """A text that may name a widget; the least one is the most likely."""

    is_icon: bool
    distance: float
    widget: int
    text: int
    place: Place


def _near(
    words: Sequence[Rectangle], boxes: Sequence[Rectangle], widgets: Sequence[Widget], free: set[int]
) -> Iterator[_Candidate]:
    for index, (widget, box) in enumerate(zip(widgets, boxes, strict=True)):
        is_picture = _is_picture(box)
        for text in free:
            places = _under_tile(box, words[text]) if is_picture else _places(widget.kind, box, words[text])
            for place, distance in places:
                yield _Candidate(widget.kind not in CONTROLS, distance, index, text, place)


def _under_tile(box: Rectangle, word: Rectangle) -> Iterator[tuple[Place, float]]:
    aside = min(abs(box.centre[1] - word.centre[1]), abs(box.left - word.left))
    under = word.top - box.bottom
    if box.width <= TILE and aside <= ALIGNED and 0 <= under <= UNDER and word.right <= box.right + ALIGNED:
        yield "under", under + aside


def _places(kind: str, box: Rectangle, word: Rectangle) -> Iterator[tuple[Place, float]]:
    """Where a text is that may name a widget, and how far: the gap, and half of its distance to the widget's middle."""
    off = abs(box.centre[0] - word.centre[0]) / 2
    if _is_in_row(box, word):
        gap = word.left - box.right
        is_bar = kind in ("button", "image") and box.top < APP_BAR
        if kind in LABEL_RIGHT and not is_bar and -ALIGNED / 2 <= gap <= BESIDE:
            yield "beside", max(gap, 0.0) + off
        gap = box.left - word.right
        if kind in LABEL_LEFT and gap >= -ALIGNED / 2:
            yield "left", BESIDE + max(gap, 0.0) / 10 + off
    aside, under = abs(box.centre[1] - word.centre[1]), word.top - box.bottom
    if kind in LABEL_UNDER and aside <= ALIGNED and -ALIGNED / 2 <= under <= UNDER:
        yield "under", max(under, 0.0) + aside
    above = box.top - word.bottom
    if kind in LABEL_ABOVE and abs(box.left - word.left) <= ALIGNED and 0 <= above <= ABOVE:
        yield "above", BESIDE + above


def _is_in_row(box: Rectangle, word: Rectangle) -> bool:
    """Whether the text is one of at most three lines beside the widget."""
    return abs(box.centre[0] - word.centre[0]) <= box.height / 2 + 0.75 * word.height


def _with_lines(first: _Candidate, words: Sequence[Rectangle], box: Rectangle, free: set[int]) -> list[int]:
    """The text and the free lines directly above or below it that continue it."""
    lines = [first.text]
    if first.place == "above":
        return lines
    middle = words[first.text].centre[0]
    for text in sorted(free - {first.text}, key=lambda text: (abs(words[text].centre[0] - middle), text)):
        if len(lines) == LINES:
            break
        is_near = words[text].top > box.bottom if first.place == "under" else _is_in_row(box, words[text])
        if is_near and any(_continues(words[text], words[line]) for line in lines):
            lines.append(text)
    return lines


def _continues(word: Rectangle, line: Rectangle) -> bool:
    """Whether one line is directly below the other, aligned at the left or in the middle."""
    is_aligned = abs(word.left - line.left) <= ALIGNED / 2 or abs(word.centre[1] - line.centre[1]) <= ALIGNED / 2
    gap = max(word.top - line.bottom, line.top - word.bottom)
    # The boxes of OCR overlap a little where lines are close.
    return is_aligned and -0.4 * min(word.height, line.height) <= gap <= max(word.height, line.height)
