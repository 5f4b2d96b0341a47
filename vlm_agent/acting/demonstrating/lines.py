"""Observed actions in words.

    tap 'Settings'            tap the search icon       swipe up            press back
    tap 'Install' (2 of 10)   tap the point (310, 75)   swipe up 3 times    press enter
    long press 'Photo'        type 'pizza' into 'Search'                    open the app 'Clock'
    tap an unknown point

A touch is named by the smallest element that contains it, or else by the nearest one within `NEAR`; without one by its
point, (x, y) in thousandths of the screen. Touches on the phone's keyboard become the text that the field has
afterwards. Secrets (`texts/secrets.py`) are masked here, before anything is stored.

A touch whose screen was not read may be a key of a PIN or a password, on a page that was never read. Its point is not
stored, and several in a row are one line, because their number would be the length of the secret.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vlm_agent.acting.demonstrating.observed import Observed, ObservedAction, ObservedScreen
from vlm_agent.episodes import KINDS_WITH_TOUCH, Action, ActionKind, UiElement, element_at
from vlm_agent.texts.secrets import MASK, Focus, Secrets, names_secret

NEAR = 0.03
"""In screen heights or widths. A button is larger than its text."""

KEYBOARD_TOP = 0.6
"""A touch below this share of the screen's height is on the keyboard, if one is shown."""

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


@dataclass
class _Writer:
    lines: list[str] = field(default_factory=list)
    secrets: Secrets = field(default_factory=Secrets)
    masked: int = 0
    unread: int = 0
    focus: Focus = field(default_factory=Focus)
    reported: Focus = field(default_factory=Focus)
    typing: _Typing | None = None
    swipes: int = 0

    def add(self, one: ObservedAction, after: ObservedScreen | None) -> None:
        """`after`: the next screen that was read."""
        action = one.action
        if not one.erases and (action.is_status or action.kind is ActionKind.WAIT):
            return
        is_key = _is_key(one, self.typing is not None) or self._is_key_of_secret(one)
        if one.erases or action.kind is ActionKind.TYPE or is_key:
            self._type(one, after)
            return
        self.end_typing()
        self._write(self._line(one))
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
            if screen is None and after.typing.name != typing.name:
                # The unread keys may have moved to another field.
                typing.is_secret |= _may_be_secret(after)

    def _is_secret(self, text: str, screen: ObservedScreen) -> bool:
        """Whether `text`, typed on the screen, is a secret."""
        if screen.typing is not None and screen.typing.text is None:
            return True
        return self.focus.is_secret(text, screen.activity, screen.elements) or self.reported.is_secret(
            text, screen.activity, screen.reported
        )

    def _is_secret_at_focus(self, text: str) -> bool:
        """Whether `text`, typed into the field that was touched last, is a secret."""
        return any(focus.is_secret(text, focus.activity, focus.elements) for focus in (self.focus, self.reported))

    def _is_key_of_secret(self, one: ObservedAction) -> bool:
        """Whether a tap types a part of a secret where `_is_key` expects no keyboard: on the digits of an app, or on
        the keyboard of a wide screen. The name or the place of the key would be a part of the secret, too."""
        if not one.action.is_tap:
            return False
        if one.screen is None:
            return self._is_secret_at_focus("") or (self.typing is not None and self.typing.is_secret)
        if not self._is_secret("", one.screen):
            return False
        touched = element_at(one.screen.elements or (), one.action.touch_yx)
        if touched is None or not _name(touched):
            return one.screen.keyboard
        return len(touched.text) == 1 and touched.text.isalnum()

    def _line(self, one: ObservedAction) -> str:
        action = one.action
        if action.is_swipe:
            return f"swipe {action.direction}"
        if action.is_tap or action.kind is ActionKind.LONG_PRESS:
            verb = "tap" if action.is_tap else "long press"
            if one.screen is None:
                self.unread += 1
                return f"{verb} {_UNREAD}"
            return f"{verb} {touched_name(action, one.screen.elements or ())}"
        if action.kind is ActionKind.OPEN_APP:
            return f"open the app {_quoted(action.text)}"
        if action.kind is ActionKind.ANSWER:
            return f"answer {_quoted(action.text)}"
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


def _may_be_secret(screen: ObservedScreen) -> bool:
    """Whether the text of the field with the focus may be a secret, if nothing is known of the touches before."""
    name = "" if screen.typing is None else screen.typing.name
    elements = (*(screen.elements or ()), *screen.reported)
    return names_secret(name) or Focus().is_secret("", screen.activity, elements)


def touched_name(action: Action, elements: Sequence[UiElement]) -> str:
    """Words for what a tap or long press touches."""
    element = element_at(elements, action.touch_yx)
    if element is None or not _name(element):
        element = _nearest(elements, action.touch_yx)
    if element is None:
        y, x = (round(1000 * value) for value in action.touch_yx)
        return f"the point ({x}, {y})"
    name = _name(element)
    same = [other for other in elements if _name(other) == name]
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
    found = [(_away(element, point_yx), number) for number, element in enumerate(elements) if _name(element)]
    away, number = min(found, default=(1.0, -1))
    return elements[number] if away <= NEAR else None


def _away(element: UiElement, point_yx: tuple[float, float]) -> float:
    y, x, height, width = element.box
    return max(y - point_yx[0], point_yx[0] - y - height, x - point_yx[1], point_yx[1] - x - width)


def _is_key(one: ObservedAction, is_typing: bool) -> bool:
    """Whether a tap is one on the phone's keyboard. Where the screen was not read, it is one if keys were tapped
    before."""
    if not one.action.is_tap or one.action.touch_yx[0] < KEYBOARD_TOP:
        return False
    return is_typing if one.screen is None else one.screen.keyboard


def _field_name(screen: ObservedScreen | None, focus: Focus) -> str:
    """The name of the field that text is typed into; empty if it is not known."""
    if screen is not None and screen.typing is not None and screen.typing.name:
        return screen.typing.name
    if focus.touch_yx is None or (screen is not None and screen.activity != focus.activity):
        return ""
    element = element_at(focus.elements, focus.touch_yx)
    return "" if element is None else element.text
