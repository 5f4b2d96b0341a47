"""Texts and widgets → parts: which text names which widget (VisionTasker, section 4.3.1).

The paper matches by distance below a maximum and by alignment. Its distances are not published; the ones here are ours.
All lengths are in widths of the screen, so that a tall screen does not stretch them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vlm_agent.episodes import Widget
from vlm_agent.screens.order import reading_order
from vlm_agent.screens.seen import Box, Part, Text

BAR = "status_bar"
"""It takes in all that lies in it: clock, signal and battery are of no use to a planner one by one."""

CONTROLS = ("edit_text", "page_indicator", "seek_bar", "rating_bar", "check_box", "radio_group", "spinner", "switch")
"""A touch on their label may do something else, so the part keeps the widget's box alone."""

LABEL_LEFT = ("seek_bar", "rating_bar", "check_box", "spinner", "switch")
"""Their label may be far away at the other end of their row."""

PICTURE = 0.3
"""An image higher and wider than this is a picture, which has no label, and whose texts are parts of their own."""

COVERED = 0.4
"""An image whose area is covered by texts to this share is those texts."""

SAME = 0.7
"""Two widgets are one if their intersection over union is larger."""

HELD: Mapping[str, tuple[str, ...]] = {BAR: (), "button": ("image",)}
"""A widget of such a kind holds those of these kinds (none: of every kind) that lie in it to the share `WITHIN`."""

WITHIN = 0.9

UNDER, BESIDE, ABOVE = 0.05, 0.06, 0.04
"""Largest gap to a text under, beside and above a widget."""

ALIGNED = 0.04
"""Largest distance of two centres, or of two left edges, that are aligned."""

LINES = 3
"""At most so many lines name one widget by standing under it or beside it."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A box in widths of the screen."""

    top: float
    left: float
    bottom: float
    right: float

    @classmethod
    def of(cls, box: Box, height: float) -> "Rectangle":
        """`height` is that of the screen, in its widths."""
        y, x, high, wide = box
        return cls(y * height, x, (y + high) * height, x + wide)

    @property
    def centre(self) -> tuple[float, float]:
        return (self.top + self.bottom) / 2, (self.left + self.right) / 2

    @property
    def height(self) -> float:
        return self.bottom - self.top

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def area(self) -> float:
        return self.height * self.width

    def holds(self, point: tuple[float, float]) -> bool:
        return self.top <= point[0] <= self.bottom and self.left <= point[1] <= self.right

    def overlap(self, other: "Rectangle") -> float:
        """Intersection over union, 1 for equal boxes without an area."""
        union = self.area + other.area - self.shared(other)
        return self.shared(other) / union if union else float(self == other)

    def shared(self, other: "Rectangle") -> float:
        """The area that both cover."""
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        wide = min(self.right, other.right) - max(self.left, other.left)
        return max(high, 0.0) * max(wide, 0.0)


@dataclass(frozen=True, slots=True)
class Match:
    """The texts that name a widget, by index. `inside`: they lie in it."""

    widget: int
    texts: tuple[int, ...]
    inside: bool


def match(texts: Sequence[Text], widgets: Sequence[Widget], size: tuple[int, int]) -> list[Match]:
    """The texts of each widget that has some. Every text belongs to at most one widget. `size`: (height, width)."""
    height = size[0] / size[1]
    words = [Rectangle.of(text.box, height) for text in texts]
    boxes = [Rectangle.of(widget.box, height) for widget in widgets]
    inside = _inside(words, boxes, widgets)
    owners: dict[int, list[int]] = {}
    for text, widget in inside.items():
        owners.setdefault(widget, []).append(text)
    matches = [Match(widget, _in_order(found, texts), True) for widget, found in owners.items()]
    free = {index for index in range(len(texts)) if index not in inside}
    for _, widget, text in sorted(_near(words, boxes, widgets, free)):
        if text in free and widget not in owners:
            lines = _with_lines(text, words, boxes[widget], free)
            free.difference_update(lines)
            owners[widget] = lines
            matches.append(Match(widget, _in_order(lines, texts), False))
    return matches


def make_parts(texts: Sequence[Text], widgets: Sequence[Widget], size: tuple[int, int]) -> tuple[Part, ...]:
    """Every widget with its texts, and every other text alone, numbered in reading order.

    An image that shows hardly more than texts is not a part: its texts are. Of widgets that are in the same place only
    the most certain is a part. An image in a button, and anything but texts in the status bar, belongs to it.
    """
    widgets = _distinct([widget for widget in widgets if not _is_text(widget, texts)])
    matches = match(texts, widgets, size)
    by_widget = {found.widget: found for found in matches}
    used = {text for found in matches for text in found.texts}
    parts = [_part(widget, by_widget.get(index), texts) for index, widget in enumerate(widgets)]
    parts += [Part(0, "text", text.box, text.text) for index, text in enumerate(texts) if index not in used]
    order = reading_order([part.box for part in parts])
    return tuple(_numbered(parts[index], number) for number, index in enumerate(order))


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


def _part(widget: Widget, found: Match | None, texts: Sequence[Text]) -> Part:
    if found is None:
        return Part(0, widget.kind, widget.box, on=widget.on)
    words = [texts[index] for index in found.texts]
    box = widget.box
    if not found.inside and widget.kind not in CONTROLS and not _is_label(widget.box, words[0].box):
        box = _around([widget.box, *(text.box for text in words)])
    return Part(0, widget.kind, box, " ".join(text.text for text in words), on=widget.on)


def _is_label(widget: Box, text: Box) -> bool:
    """Whether the text stands under the widget, as the name of an app under its icon: the widget alone is touched."""
    return text[0] + text[2] / 2 > widget[0] + widget[2]


def _numbered(part: Part, number: int) -> Part:
    return Part(number, part.kind, part.box, part.text, part.meaning, part.on, part.selected)


def _around(boxes: Sequence[Box]) -> Box:
    top, left = min(box[0] for box in boxes), min(box[1] for box in boxes)
    bottom, right = max(box[0] + box[2] for box in boxes), max(box[1] + box[3] for box in boxes)
    return (top, left, bottom - top, right - left)


def _in_order(found: Sequence[int], texts: Sequence[Text]) -> tuple[int, ...]:
    return tuple(found[index] for index in reading_order([texts[text].box for text in found]))


def _inside(words: Sequence[Rectangle], boxes: Sequence[Rectangle], widgets: Sequence[Widget]) -> dict[int, int]:
    """Text → the smallest widget that its centre lies in."""
    owners = {}
    for text, word in enumerate(words):
        around = [index for index, box in enumerate(boxes) if box.holds(word.centre) and _may_hold(widgets[index], box)]
        if around:
            owners[text] = min(around, key=lambda index: (boxes[index].area, index))
    return owners


def _may_hold(widget: Widget, box: Rectangle) -> bool:
    if widget.kind == "navigation_bar":
        return False
    return widget.kind != "image" or not _is_picture(box)


def _is_picture(box: Rectangle) -> bool:
    return box.height > PICTURE and box.width > PICTURE


def _near(
    words: Sequence[Rectangle], boxes: Sequence[Rectangle], widgets: Sequence[Widget], free: set[int]
) -> Iterator[tuple[float, int, int]]:
    """(distance, widget, text) of texts that are near enough to a widget and aligned with it."""
    for index, (widget, box) in enumerate(zip(widgets, boxes, strict=True)):
        if widget.kind in (BAR, "navigation_bar", "page_indicator") or _is_picture(box):
            continue
        for text in free:
            distance = _distance(widget.kind, box, words[text])
            if distance is not None:
                yield distance, index, text


def _distance(kind: str, box: Rectangle, word: Rectangle) -> float | None:
    """The gap between a widget and a text that may name it; None if it may not."""
    (y, x), (text_y, text_x) = box.centre, word.centre
    if box.top - word.height <= text_y <= box.bottom + word.height:
        right = word.left - box.right
        if -ALIGNED / 2 <= right <= BESIDE and kind not in ("switch", "seek_bar", "edit_text"):
            return max(right, 0.0) + abs(y - text_y) / 2
        left = box.left - word.right
        if kind in LABEL_LEFT and left >= -ALIGNED / 2:
            return BESIDE + left / 10 + abs(y - text_y) / 2
    under = word.top - box.bottom
    if kind in ("button", "image") and abs(x - text_x) <= ALIGNED and -ALIGNED / 2 <= under <= UNDER:
        return max(under, 0.0) + abs(x - text_x)
    above = box.top - word.bottom
    if kind in ("edit_text", "seek_bar", "spinner") and abs(box.left - word.left) <= ALIGNED and 0 <= above <= ABOVE:
        return BESIDE + above
    return None


def _with_lines(first: int, words: Sequence[Rectangle], box: Rectangle, free: set[int]) -> list[int]:
    """The text and the free lines directly above or below it that continue it: aligned, and near the widget."""
    lines = [first]
    for text in sorted(free - {first}, key=lambda text: abs(words[text].centre[0] - words[first].centre[0])):
        if len(lines) < LINES and any(_continues(words[text], words[line], box) for line in lines):
            lines.append(text)
    return lines


def _continues(word: Rectangle, line: Rectangle, box: Rectangle) -> bool:
    is_aligned = abs(word.left - line.left) <= ALIGNED / 2 or abs(word.centre[1] - line.centre[1]) <= ALIGNED / 2
    gap = max(word.top - line.bottom, line.top - word.bottom)
    is_near = box.top - word.height <= word.centre[0] <= max(box.bottom, line.bottom) + word.height
    return is_aligned and is_near and gap <= 0.6 * min(word.height, line.height)
