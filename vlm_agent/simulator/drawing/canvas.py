"""The drawing surface. Drawing a text or icon also adds its annotation; touchable parts also add a target.

Lengths and positions are in *units*, 1/208 of the width of an upright phone (`Canvas.unit`), so that layouts look the
same at every resolution. Text and icons are rendered at their final size in pixels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw

from vlm_agent.episodes import WIDGET_KINDS, UiElement, Widget
from vlm_agent.simulator.drawing.fonts import font
from vlm_agent.simulator.drawing.icons import app_icon, element_type, glyph_mask, shape_mask
from vlm_agent.simulator.drawing.theme import Colour, Theme, wallpaper

UNITS = (448, 208)
"""An upright phone's (height, width) in units."""

VISIBLE = 0.7
"""A text or icon is annotated if at least this fraction of it is visible in each direction."""

Box = tuple[int, int, int, int]
"""(left, top, right, bottom) in pixels."""


@dataclass(frozen=True, slots=True)
class Target:
    """A touchable part: `hit` is the area that reacts to taps, `aim` the annotated text or icon that a person would aim
    at. `on_tap` is None for a target without effect."""

    key: str
    hit: Box
    aim: Box
    on_tap: Callable[[], object] | None


@dataclass(frozen=True, slots=True)
class Tab:
    """One of a row of tabs: its label, the box of the label in pixels, and whether it is the active one."""

    label: str
    box: Box
    active: bool


@dataclass(frozen=True, slots=True)
class Hidden:
    """A target that is not visible. A swipe in `direction` moves towards it; a sideways swipe starts at height `y`
    (pixels)."""

    direction: str
    y: float | None = None


@dataclass(frozen=True, slots=True)
class Strip:
    """A part of the screen, between `top` and `bottom` (pixels), that scrolls sideways by up to `limit` units."""

    name: str
    top: int
    bottom: int
    limit: float


@lru_cache(maxsize=8192)
def text_mask(text: str, typeface: str, pixels: int) -> tuple[Image.Image, int, int]:
    """The mask of one line of text (Pillow mode L) and its (left, top) in pixels relative to the start of the
    baseline."""
    face = font(typeface, pixels)
    left, top, right, bottom = face.getbbox(text, anchor="ls")
    mask = Image.new("L", (max(1, int(right - left)), max(1, int(bottom - top))))
    ImageDraw.Draw(mask).text((-left, -top), text, fill=255, font=face, anchor="ls")
    return mask, int(left), int(top)


@lru_cache(maxsize=8192)
def fitted(text: str, typeface: str, pixels: int, width: int) -> str:
    """`text` on one line, truncated with an ellipsis if it is wider than `width` pixels."""
    line = " ".join(text.split())[:200]
    face = font(typeface, pixels)
    if face.getlength(line) <= width:
        return line
    while line and face.getlength(line + "…") > width:
        line = line[:-1]
    return line.rstrip() + "…"


@lru_cache(maxsize=4096)
def wrapped(text: str, typeface: str, pixels: int, width: int) -> tuple[str, ...]:
    """`text` broken at spaces into lines of at most `width` pixels."""
    lines, line = [], ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if line and font(typeface, pixels).getlength(longer) > width:
            lines.append(line)
            line = word
        else:
            line = longer
    return (*lines, line)


class Canvas:
    """One screen of `size` (height, width) pixels; `image` is the RGB result, `h` and `w` its size in units.

    `clip` is the (top, bottom) of the drawable rows, `body` that of the scrolling part of the page, both in pixels.
    `notes`: (box, text, type) of every annotation. `hidden`: key → the swipe towards a target that is not visible.
    `tabs`: rows of tabs. Widgets and tabs are truth for training and tests; annotations do not contain them.
    """

    def __init__(self, size: tuple[int, int], theme: Theme) -> None:
        self.size = size
        self.theme = theme
        self.unit = min(size[0] / UNITS[0], size[1] / UNITS[1])
        self.h, self.w = size[0] / self.unit, size[1] / self.unit
        self.image = Image.new("RGB", (size[1], size[0]), theme.background)
        self.clip = (0, size[0])
        self.notes: list[tuple[Box, str, str]] = []
        self._switches: list[tuple[str, bool, tuple[Box, Box]]] = []
        self._widgets: list[tuple[str, Box, bool | None]] = []
        self.tabs: list[Tab] = []
        self.targets: list[Target] = []
        self.hidden: dict[str, Hidden] = {}
        self.strips: list[Strip] = []
        self.body = (0, size[0])
        self.margin = 12.0

    def find(self, key: str) -> Target | None:
        """The topmost visible target with this key, None if no target has it."""
        return next((target for target in reversed(self.targets) if target.key == key), None)

    def px(self, units: float) -> int:
        """Units → pixels."""
        return round(units * self.unit)

    # Drawing

    def wallpaper(self) -> None:
        self.image.paste(wallpaper(self.theme.wallpaper, self.size[1], self.size[0]))

    def rect(self, x: float, y: float, w: float, h: float, colour: Colour, radius: float = 0.0) -> Box:
        """Draws a filled rectangle with its top left corner at (x, y); returns its box in pixels, not clipped."""
        left, top, right, bottom = self.px(x), self.px(y), self.px(x + w), self.px(y + h)
        low, high = max(top, self.clip[0]), min(bottom, self.clip[1])
        if right <= left or high <= low:
            return (left, top, right, bottom)
        if radius <= 0:
            self.image.paste(colour, (left, low, right, high))
        else:
            self._stamp(colour, left, top, shape_mask(right - left, bottom - top, self.px(radius)))
        return (left, top, right, bottom)

    def frame(self, x: float, y: float, w: float, h: float, colour: Colour, inside: Colour, radius: float = 6.0) -> Box:
        """A rounded rectangle with a thin border."""
        box = self.rect(x, y, w, h, colour, radius)
        edge = max(1, self.px(0.8)) / self.unit
        self.rect(x + edge, y + edge, w - 2 * edge, h - 2 * edge, inside, max(0.0, radius - edge))
        return box

    def line(self, y: float, x: float = 0.0, w: float | None = None) -> None:
        """Draws a thin horizontal line, by default as far as the right edge."""
        top = self.px(y)
        bottom = top + max(1, self.px(0.6))
        if top >= self.clip[0] and bottom <= self.clip[1]:
            self.image.paste(self.theme.line, (self.px(x), top, self.px(x + (self.w - x if w is None else w)), bottom))

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 12.0,
        colour: Colour | None = None,
        weight: str = "Regular",
        align: float = 0.0,
        width: float | None = None,
        note: bool = True,
    ) -> Box:
        """Draws one line of text, truncated to `width` units. `y` is the centre of capital letters; `x` is the start
        (`align` 0), the centre (0.5) or the end (1) of the line.

        Returns the tight box of the text in pixels. `note`: add an annotation with this box, as OCR would.
        """
        pixels = max(6, round(size * self.unit * self.theme.font_scale))
        row = round(y * self.unit)
        if row + pixels < self.clip[0] or row - pixels > self.clip[1]:
            # Outside the clip an approximate box is enough, because measuring text is slow.
            return (self.px(x), row - pixels // 2, self.px(x) + pixels, row + pixels // 2)
        typeface = f"{self.theme.font}-{weight}"
        line = fitted(text, typeface, pixels, self.px(self.w - 4 if width is None else width))
        mask, left, top = text_mask(line, typeface, pixels)
        left += round(x * self.unit - mask.width * align)
        top += round(y * self.unit + pixels * 0.355)
        self._stamp(colour or self.theme.ink, left, top, mask)
        box = (left, top, left + mask.width, top + mask.height)
        if note and line:
            self._note(box, line, "TEXT")
        return box

    def paragraph(
        self, x: float, y: float, text: str, size: float, colour: Colour, width: float, lines: int = 9
    ) -> float:
        """Draws wrapped text with its first line centred on `y`; returns the y after the last line."""
        pixels = max(6, round(size * self.unit * self.theme.font_scale))
        for line in wrapped(text, f"{self.theme.font}-Regular", pixels, self.px(width))[:lines]:
            self.text(x, y, line, size, colour, width=width)
            y += size * 1.3
        return y

    def glyph(
        self,
        name: str,
        x: float,
        y: float,
        size: float,
        colour: Colour | None = None,
        note: bool = True,
        is_button: bool = True,
    ) -> Box:
        """Draws a single-colour icon centred on (x, y); returns its box, a square.

        An annotated icon is a widget, a button, unless `is_button` is false because it is part of another widget. The
        box of the button lies on the ink, but is not narrower or lower than a third of the square.
        """
        pixels = max(4, self.px(size))
        left, top = round(x * self.unit - pixels / 2), round(y * self.unit - pixels / 2)
        mask = glyph_mask(name, pixels, self.theme.strokes)
        self._stamp(colour or self.theme.ink, left, top, mask)
        box = (left, top, left + pixels, top + pixels)
        if note:
            self._note(box, "", element_type(name))
            if is_button:
                self.widget("button", _ink_box(mask, left, top))
        return box

    def app_icon(self, glyph: str, colour: Colour, x: float, y: float, size: float, note: bool = True) -> Box:
        """Draws an app icon centred on (x, y); returns its box."""
        pixels = max(8, self.px(size))
        left, top = round(x * self.unit - pixels / 2), round(y * self.unit - pixels / 2)
        icon = app_icon(glyph, colour, self.theme.icon_shape, pixels, self.theme.strokes)
        self._stamp(icon, left, top, icon)
        box = (left, top, left + pixels, top + pixels)
        if note:
            self._note(box, "", element_type(glyph))
            self.widget("image", box)
        return box

    def dim(self, share: float = 0.55) -> None:
        """Darken the screen by `share` (0 to 1) and remove its annotations and targets, as a dialog does."""
        self.image = self.image.point([round(value * (1 - share)) for value in range(256)] * 3)
        self.cover(0, 0, self.w, self.h)

    def _stamp(self, ink: Colour | Image.Image, left: int, top: int, mask: Image.Image) -> None:
        low, high = self.clip
        bottom = top + mask.height
        if bottom <= low or top >= high or left >= self.size[1] or left + mask.width <= 0:
            return
        if top < low or bottom > high:
            crop = (0, max(0, low - top), mask.width, min(mask.height, high - top))
            mask = mask.crop(crop)
            ink = ink.crop(crop) if isinstance(ink, Image.Image) else ink
            top = max(top, low)
        self.image.paste(ink, (left, top, left + mask.width, top + mask.height), mask)

    # Annotations and targets

    def shown(self, box: Box) -> bool:
        """Whether at least the fraction `VISIBLE` of the box lies inside the clip and the screen."""
        wide = min(box[2], self.size[1]) - max(box[0], 0)
        high = min(box[3], self.clip[1]) - max(box[1], self.clip[0])
        return wide >= VISIBLE * (box[2] - box[0]) and high >= VISIBLE * (box[3] - box[1])

    def _note(self, box: Box, text: str, kind: str) -> None:
        if self.shown(box):
            self.notes.append((self._inside(box), text, kind))

    def _inside(self, box: Box) -> Box:
        low, high = self.clip
        return (max(box[0], 0), max(box[1], low), min(box[2], self.size[1]), min(box[3], high))

    def target(self, key: str, hit: Box, aim: Box, on_tap: Callable[[], object] | None) -> None:
        """Add a target. If `aim` is not visible, the target is recorded as hidden, with the swipe towards it."""
        if self.shown(aim):
            self.targets.append(Target(key, self._inside(hit), self._inside(aim), on_tap))
            return
        middle = (aim[1] + aim[3]) / 2
        if aim[3] > self.clip[1] or aim[1] < self.clip[0]:
            self.hide(key, "up" if middle > (self.clip[0] + self.clip[1]) / 2 else "down")
        else:
            self.hide(key, "left" if aim[2] > self.size[1] else "right", middle)

    def hide(self, key: str, direction: str, y: float | None = None) -> None:
        """Record a target that is not visible, unless one with this key is recorded already; see `Hidden`."""
        self.hidden.setdefault(key, Hidden(direction, y))

    def strip(self, name: str, y: float, h: float, limit: float) -> None:
        """Record a strip at `y` of height `h` (units); see `Strip`. No effect if the name is empty."""
        if name:
            self.strips.append(Strip(name, self.px(y), self.px(y + h), max(0.0, limit)))

    def cover(self, x: float, y: float, w: float, h: float) -> None:
        """Remove annotations and targets from an area that the caller covers next."""
        box = (self.px(x), self.px(y), self.px(x + w), self.px(y + h))
        self.notes = [note for note in self.notes if not _over(note[0], box)]
        self._switches = [one for one in self._switches if not any(_over(part, box) for part in one[2])]
        self._widgets = [one for one in self._widgets if not _over(one[1], box)]
        self.tabs = [tab for tab in self.tabs if not _over(tab.box, box)]
        for target in self.targets:
            if target.key and _over(target.aim, box):
                self.hide(target.key, "up")
        self.targets = [target for target in self.targets if not _over(target.aim, box)]
        self.targets.append(Target("", box, box, None))
        self.strips = [strip for strip in self.strips if not box[1] <= (strip.top + strip.bottom) / 2 < box[3]]

    def switch(self, label: str, on: bool, text: Box, toggle: Box) -> None:
        """Record the state of a switch whose label has the box `text` and whose toggle has the box `toggle`."""
        if self.shown(text) and self.shown(toggle):
            self._switches.append((label, on, (text, toggle)))

    def widget(self, kind: str, box: Box, on: bool | None = None) -> None:
        """Record a widget that is drawn in `box` (pixels) and visible; see `Widget`. Raises ValueError for an unknown
        kind."""
        if kind not in WIDGET_KINDS:
            raise ValueError(f"unknown kind of widget {kind!r}")
        if self.shown(box):
            self._widgets.append((kind, self._inside(box), on))

    def tab(self, label: str, box: Box, active: bool) -> None:
        """Record a tab; see `Tab`."""
        if self.shown(box):
            self.tabs.append(Tab(label, self._inside(box), active))

    def widgets(self) -> tuple[Widget, ...]:
        """The recorded widgets, in the order in which they were drawn."""
        height, width = self.size
        return tuple(
            Widget(kind, (top / height, left / width, (bottom - top) / height, (right - left) / width), on)
            for kind, (left, top, right, bottom), on in self._widgets
        )

    @property
    def states(self) -> dict[str, bool]:
        """Label → whether the switch is on, for switches whose label is unique and annotated in full."""
        labels = [label for label, _, _ in self._switches]
        texts = {text for _, text, _ in self.notes}
        return {label: on for label, on, _ in self._switches if labels.count(label) == 1 and label in texts}

    def elements(self) -> tuple[UiElement, ...]:
        """The annotations; boxes are (y, x, height, width) in screen fractions, exactly representable in float32."""
        height, width = self.size
        if not self.notes:
            return ()
        boxes = np.array([note[0] for note in self.notes], np.float32)
        boxes[:, 2:] -= boxes[:, :2]
        fractions: list[list[float]] = (boxes / np.array([width, height, width, height], np.float32)).tolist()
        return tuple(
            UiElement((y, x, h, w), text, kind)
            for (x, y, w, h), (_, text, kind) in zip(fractions, self.notes, strict=True)
        )


def _ink_box(mask: Image.Image, left: int, top: int) -> Box:
    """The box of a square mask's ink, at least a third of the square wide and high; (left, top): of the square."""
    x0, y0, x1, y1 = mask.getbbox() or (0, 0, *mask.size)
    least = mask.width // 3
    grow_x, grow_y = max(0, least - (x1 - x0) + 1) // 2, max(0, least - (y1 - y0) + 1) // 2
    return (left + x0 - grow_x, top + y0 - grow_y, left + x1 + grow_x, top + y1 + grow_y)


def _over(box: Box, cover: Box) -> bool:
    """Whether the centre of `box` lies in `cover`."""
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return cover[0] <= x < cover[2] and cover[1] <= y < cover[3]
