"""Observed actions in words.

    tap 'Settings'            tap the search icon       swipe up            press back
    tap 'Install' (2 of 10)   tap the point (310, 75)   swipe up 3 times    press enter
    long press 'Photo'        type 'pizza' into 'Search'                    open the app 'Clock'
    tap an unknown point

A touch is named by the smallest element that contains it, or else by the nearest one within `NEAR`; without one by its
point, (x, y) in thousandths of the screen. Touches on the phone's keyboard become the text that the field has
afterwards. Secrets (`texts/secrets.py`) are masked here, before anything is stored; so is what their field shows when
the phone reports its content, as after "show password".

A touch whose screen was not read may be a key of a PIN or a password, on a page that was never read. Its point is not
stored, and several in a row are one line, because their number would be the length of the secret.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from vlm_agent.devices.acting.demonstrating.observed import Observed, ObservedAction, ObservedScreen
from vlm_agent.episodes import KINDS_WITH_TOUCH, Action, ActionKind, UiElement, element_at
from vlm_agent.geometry import distance
from vlm_agent.texts.secrets import MASK, SHORT, Focus, Secrets, names_secret

NEAR = 0.03
"""In screen heights or widths. A button is larger than its text."""

KEYBOARD_TOP = 0.6
"""A touch below this share of the screen's height is on the keyboard, if one is shown."""

EDGE = 0.03
"""In screen heights or widths: closer to an edge than the middle of a key."""

LONGEST_KEY = 12
"""In characters: "5 JKL", "digit 5"."""

SAME_BOX = 0.01
"""Largest difference of two edges, in screen heights or widths, of a field that is still in its place."""

_WORD = re.compile(r"\w+")
_DIGIT_KEY = re.compile(r"\d(?:[A-Z]{3,4})?")

LONGEST_NAME = 80
_TYPED_UNSEEN = "a text"
_UNREAD = "an unknown point"


@dataclass(frozen=True)
class Lines:
    """`lines`: the demonstration. `masked`: typed secrets. `unread`: touches whose screen was not read in time.
    `secrets`: for other texts of the session, such as its goal."""

    lines: tuple[str, ...]
    masked: int
    unread: int
    secrets: Secrets = field(default_factory=Secrets, repr=False)


def lines_of(observed: Observed) -> Lines:
    """The session in words. Status actions, waiting and keys without effect have no line."""
    writer = _Writer()
    for number, one in enumerate(observed.actions):
        later = observed.actions[number + 1 :]
        after = next((other.screen for other in later if other.screen is not None), observed.last)
        writer.add(one, after)
    writer.end_typing()
    writer.note_shown(observed.last)
    return Lines(
        tuple(writer.secrets.mask(line) for line in writer.lines), writer.masked, writer.unread, writer.secrets
    )


@dataclass
class _Typing:
    """What is being typed. `direct`: by actions with a text. `by_keys`: on the phone's keyboard, where the text is what
    the field shows last; None until then."""

    name: str
    is_secret: bool
    direct: str = ""
    by_keys: str | None = None
    keys: int = 0


@dataclass(frozen=True)
class _SecretField:
    """A field into which a secret was typed. `texts`: those of its screen. `is_reported`: the element is the phone's
    own, where `elements` of screens are read from pixels."""

    activity: str
    element: UiElement
    texts: frozenset[str]
    is_reported: bool

    def is_on(self, activity: str, elements: Sequence[UiElement]) -> bool:
        """Whether a screen is that of the field: another page of the activity may have other texts at its place."""
        shared = self.texts.intersection(element.text for element in elements)
        return activity == self.activity and 2 * len(shared) >= len(self.texts)

    def contents(self, screen: ObservedScreen) -> Iterator[str]:
        """What it shows on a screen, by the elements of its own origin: others name it in other words."""
        elements = screen.reported if self.is_reported else screen.elements or ()
        if not self.is_on(screen.activity, elements):
            return
        for element in elements:
            edges = zip(element.box, self.element.box, strict=True)
            is_here = all(abs(one - other) <= SAME_BOX for one, other in edges)
            if is_here and element.text != self.element.text and not names_secret(element.text):
                yield element.text


@dataclass
class _Writer:
    lines: list[str] = field(default_factory=list)
    secrets: Secrets = field(default_factory=Secrets)
    masked: int = 0
    unread: int = 0
    focus: Focus = field(default_factory=Focus)
    reported: Focus = field(default_factory=Focus)
    typing: _Typing | None = None
    fields: list[_SecretField] = field(default_factory=list)
    swipes: int = 0

    def add(self, one: ObservedAction, after: ObservedScreen | None) -> None:
        """`after`: the next screen that was read."""
        action = one.action
        self.note_shown(one.screen)
        if not one.erases and (action.is_status or action.kind is ActionKind.WAIT):
            return
        is_key = _is_key(one, self.typing is not None) or self._is_key_of_secret(one)
        if one.erases or action.kind is ActionKind.TYPE or is_key:
            self._type(one, after)
            return
        self.end_typing()
        self._write(self._line(one, after))
        if one.screen is not None:
            self.focus = self.focus.after(action, one.screen.activity, one.screen.elements)
            self.reported = self.reported.after(action, one.screen.activity, one.screen.reported)
        elif action.kind in KINDS_WITH_TOUCH:
            # The touch may have moved to any field.
            self.focus, self.reported = Focus(), Focus()

    def end_typing(self) -> None:
        typing, self.typing = self.typing, None
        if typing is None or not (typing.keys or typing.direct):
            return
        text = typing.direct if typing.by_keys is None else typing.by_keys
        into = f" into {_quoted(typing.name)}" if typing.name else ""
        if typing.is_secret or self._is_secret_at_focus(text):
            self.secrets.add(text, continues=False)
            self.masked += 1
            self._note_fields()
            self._write(f"type '{MASK}'{into}")
        else:
            self._write(f"type {_quoted(text) if text else _TYPED_UNSEEN}{into}")

    def _type(self, one: ObservedAction, after: ObservedScreen | None) -> None:
        screen, text = one.screen, one.action.text
        if self.typing is None:
            self.typing = _Typing(_field_name(screen, self.focus), False)
        typing = self.typing
        if screen is not None:
            typing.is_secret |= self._is_secret(text, screen)
        if one.erases:
            typing.direct = typing.direct[:-1]
            typing.keys += 1
        elif one.action.kind is ActionKind.TYPE:
            typing.direct += text
        else:
            typing.keys += 1
        if typing.keys and after is not None and after.typing is not None and after.typing.text is not None:
            typing.by_keys = after.typing.text
            typing.is_secret |= names_secret(after.typing.name)
            if screen is None and after.typing.name != typing.name:
                # The unread keys may have moved to another field.
                shown = (*(after.elements or ()), *after.reported)
                typing.is_secret |= Focus().is_secret("", after.activity, shown)

    def _is_secret(self, text: str, screen: ObservedScreen) -> bool:
        """Whether `text`, typed on the screen, is a secret."""
        if screen.typing is not None and (screen.typing.text is None or names_secret(screen.typing.name)):
            return True
        return (
            self._is_in_secret_field()
            or self.focus.is_secret(text, screen.activity, screen.elements)
            or self.reported.is_secret(text, screen.activity, screen.reported)
        )

    def _is_secret_at_focus(self, text: str) -> bool:
        """Whether `text`, typed into the field that was touched last, is a secret."""
        return self._is_in_secret_field() or any(
            focus.is_secret(text, focus.activity, focus.elements) for focus in (self.focus, self.reported)
        )

    def _is_in_secret_field(self) -> bool:
        """Whether a secret was typed before into the field that was touched last, whatever it shows now."""
        return any(
            focus.touch_yx is not None
            and field.element.contains(focus.touch_yx)
            and field.is_on(focus.activity, focus.elements)
            for field in self.fields
            for focus in (self.focus, self.reported)
        )

    def _note_fields(self) -> None:
        for focus, is_reported in ((self.focus, False), (self.reported, True)):
            touched = None if focus.touch_yx is None else element_at(focus.elements, focus.touch_yx)
            if touched is not None:
                texts = frozenset(element.text for element in focus.elements) - {touched.text}
                self.fields.append(_SecretField(focus.activity, touched, texts, is_reported))

    def note_shown(self, screen: ObservedScreen | None) -> None:
        """Keeps in mind the secrets that a screen shows. One of few letters may be the beginning of what is typed: as a
        word of any line it would mask too much."""
        if screen is None:
            return
        typing, shown = screen.typing, [text for field in self.fields for text in field.contents(screen)]
        if typing is not None and typing.text is not None and names_secret(typing.name):
            shown.append(typing.text)
        for text in shown:
            if len(text.strip()) >= SHORT:
                self.secrets.add(text, continues=False)

    def _is_key_of_secret(self, one: ObservedAction) -> bool:
        """Whether a touch types a part of a secret where `_is_key` expects no keyboard: on the digits of an app, or on
        the keyboard of a wide screen. The name or the place of the key would be a part of the secret, too."""
        if not one.action.is_touch:
            return False
        if one.screen is None:
            return self._is_secret_at_focus("") or (self.typing is not None and self.typing.is_secret)
        if not self._is_secret("", one.screen):
            return False
        touched = element_at(one.screen.elements or (), one.action.touch_yx)
        if touched is None or not _name(touched):
            return one.screen.keyboard
        return _is_key_name(touched.text)

    def _line(self, one: ObservedAction, after: ObservedScreen | None) -> str:
        action = one.action
        if action.is_swipe:
            return f"swipe {action.direction}"
        if action.is_touch:
            verb = "tap" if action.is_tap else "long press"
            if one.screen is None or not one.screen.elements:  # the point may be a key of a secret
                self.unread += 1
                return f"{verb} {_UNREAD}"
            secret = _secret_field_at(action.touch_yx, one.screen, after)
            if secret is not None:
                return f"{verb} {_quoted(secret)}"
            return f"{verb} {touched_name(action, one.screen.elements or (), one.screen.labels)}"
        if action.kind.facts.has_text:
            return f"{action.kind.facts.words} {_quoted(action.text)}"
        return f"press {action.name}"

    def _write(self, line: str) -> None:
        """Adds a line; the same swipe several times in a row is one line, and so are unread touches."""
        if line.endswith(_UNREAD) and self.lines and self.lines[-1] == line:
            return
        if line.startswith("swipe ") and self.lines and self.swipes and self.lines[-1].startswith(line):
            self.swipes += 1
            self.lines[-1] = f"{line} {self.swipes} times"
            return
        self.swipes = 1 if line.startswith("swipe ") else 0
        self.lines.append(line)


def _is_key_name(text: str) -> bool:
    """Whether a key for a letter or a digit may have this name: one character, or one digit with letters or words."""
    if len(text) == 1:
        return text.isalnum()
    with_digits = [word for word in _WORD.findall(text) if any(letter.isdigit() for letter in word)]
    return len(text) <= LONGEST_KEY and len(with_digits) == 1 and _DIGIT_KEY.fullmatch(with_digits[0]) is not None


def _secret_field_at(point_yx: tuple[float, float], screen: ObservedScreen, after: ObservedScreen | None) -> str | None:
    """The name of a field for a secret, if what is touched shows its content in place of its name."""
    touched = element_at(screen.elements or (), point_yx)
    content = "" if touched is None else touched.text.strip()
    typing = [one.typing for one in (screen, after) if one is not None and one.typing is not None]
    names = (one.name for one in typing if content and content == (one.text or "").strip() and names_secret(one.name))
    return next(names, None)


def touched_name(action: Action, elements: Sequence[UiElement], labels: Sequence[UiElement] = ()) -> str:
    """Words for what a tap or long press touches. `labels`: as in `ObservedScreen`."""
    shown = (*elements, *labels)
    element = element_at(shown, action.touch_yx)
    if element is None or not _name(element):
        element = _nearest(shown, action.touch_yx)
    if element is None:
        y, x = (round(1000 * value) for value in action.touch_yx)
        return f"the point ({x}, {y})"
    name = _name(element)
    # A label and what it names have the same name, and count as one.
    counted = elements if element in elements else labels
    same = [other for other in counted if _name(other) == name]
    place = f" ({same.index(element) + 1} of {len(same)})" if len(same) > 1 else ""
    return f"{name}{place}"


def _name(element: UiElement) -> str:
    """A text in quotes, or an icon; empty for an element without a name."""
    if element.text.strip():
        return _quoted(element.text)
    if element.type.startswith("ICON_"):
        return f"the {element.type.removeprefix('ICON_').lower().replace('_', ' ')} icon"
    return ""


def _quoted(text: str) -> str:
    line = " ".join(text.split()).replace("'", "\N{RIGHT SINGLE QUOTATION MARK}")
    return f"'{line if len(line) <= LONGEST_NAME else line[: LONGEST_NAME - 1] + '…'}'"


def _nearest(elements: Sequence[UiElement], point_yx: tuple[float, float]) -> UiElement | None:
    found = [(distance(element.box, point_yx), number) for number, element in enumerate(elements) if _name(element)]
    away, number = min(found, default=(1.0, -1))
    return elements[number] if away <= NEAR else None


def _is_key(one: ObservedAction, is_typing: bool) -> bool:
    """Whether a touch is one on the phone's keyboard: a key, a held key, or a swipe over several (glide typing). Where
    the screen was not read, a tap or a long press is one if keys were touched before."""
    if one.action.kind not in KINDS_WITH_TOUCH or one.action.touch_yx[0] < KEYBOARD_TOP or _is_from_edge(one.action):
        return False
    return is_typing and one.action.is_touch if one.screen is None else one.screen.keyboard


def _is_from_edge(action: Action) -> bool:
    """Whether a swipe begins at an edge of the screen: Android's gestures for back and home do, also on a keyboard."""
    y, x = action.touch_yx
    return action.is_swipe and (y > 1 - EDGE or not EDGE <= x <= 1 - EDGE)


def _field_name(screen: ObservedScreen | None, focus: Focus) -> str:
    """The name of the field that text is typed into; empty if it is not known."""
    if screen is not None and screen.typing is not None and screen.typing.name:
        return screen.typing.name
    if focus.touch_yx is None or (screen is not None and screen.activity != focus.activity):
        return ""
    element = element_at(focus.elements, focus.touch_yx)
    return "" if element is None else element.text
