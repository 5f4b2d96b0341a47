"""A screen, and what an action changed on it, in a few words: the notes `screen` and `result` on any phone.

    clock home: Alarm, Timer, Stopwatch        screen_text: the app, the page, the first names
    now at browser results: All, News          result_text: where the phone is now, or what changed there

Both are computed from the activity and the elements alone, which any phone provides. They know neither the goal nor the
action, so they cannot state that a goal is reached; a name that contains the word "goal" is left out. They use words of
the embedded base's vocabulary around the names. A text is one printable line of at most `MAX_PIECES` pieces and
`MAX_CHARACTERS` characters, whatever the screen shows.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from vlm_agent.episodes import Screen, UiElement
from vlm_agent.texts.folding import normalized

MAX_PIECES = 15
"""Words, spaces and punctuation marks of a text. The base has a token for each, if it knows the word."""

MAX_CHARACTERS = 160
_MAX_NAMES = 3
_MAX_NAME_CHARACTERS = 24
_MAX_WORD_CHARACTERS = 16
_MAX_PAGE_WORDS = 3

_NOTHING_SHOWN = "nothing here"
_NOTHING_NEW = "nothing new to read"
_DIRECTIONS = {"down": "down the page", "up": "up the page", "right": "to the right", "left": "to the left"}
_LAUNCHER_PAGES = {"drawer": "list of all apps", "recents": "list of recent apps"}
_PLAINER = {"added": "add", "calling": "call", "cities": "city", "product": "item", "updates": "update"}
"""Words of activities that the base would spell letter by letter → words that it knows."""
_PACKAGE_ENDS = frozenset({"android", "app", "apps", "client", "mobile"})
_PIECE = re.compile(r"[^\W_]+|[\W_]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+")
_KEYBOARD_ICONS = frozenset({"ICON_SHIFT", "ICON_ERASE"})
_KEYBOARD_LETTERS = 20
_SCROLLED = 0.15
"""The least shift of a scrolled list, in screen fractions. An inserted row shifts those below it by less."""
_SAME_PLACE = 0.02


def pieces(text: str) -> int:
    """The number of words, spaces and punctuation marks."""
    return len(_PIECE.findall(text))


def screen_text(screen: Screen) -> str:
    """The screen description (SD): the app, the page, and the first names on it."""
    names = _names(screen)
    return _listed(_place(screen), names) or f"{_place(screen)}: {_NOTHING_SHOWN}"


def result_text(before: Screen, after: Screen) -> str:
    """The result of an action (AR), from the screens before and after it: where the phone is now, or what changed.

    Changes without a new text, such as the colour of a switch, are not noticed: the text is "nothing new to read".
    """
    if before.activity != after.activity:
        place = f"now at {_place(after)}"
        return _listed(place, _names(after)) or place
    return next(_changes(before, after))


def _changes(before: Screen, after: Screen) -> Iterator[str]:
    """Descriptions of the change between two screens of one activity, the best first; at least one."""
    earlier, later = dict.fromkeys(_names(before)), dict.fromkeys(_names(after))
    new = [name for name in later if name not in earlier]
    lost = [name for name in earlier if name not in later]
    replaced = _replaced(before, after)
    typing = _shows_keyboard(before), _shows_keyboard(after)
    if all(typing) and replaced:
        yield from _fitting(f"the text is now {replaced[0][1]}")
    if typing[0] != typing[1]:
        keyboard = f"the keyboard is {'on' if typing[1] else 'off'}"
        yield _listed(keyboard, new) or keyboard
    if direction := _scrolled(before, after):
        yield _listed(_DIRECTIONS[direction], new) or f"now {_DIRECTIONS[direction]}"
    if len(replaced) == 1:
        yield from _fitting("{} is now {}".format(*replaced[0]))
    if shown := _listed("new here", new):
        yield shown
    yield from (text for name in lost for text in _fitting(f"{name} is not here now"))
    yield _NOTHING_NEW


def _fitting(text: str) -> Iterator[str]:
    if pieces(text) <= MAX_PIECES:
        yield text


def _listed(opening: str, names: Iterable[str]) -> str:
    """`opening: name, name`, with the first names that fit; empty if none fits."""
    text, separator, count = opening, ": ", 0
    for name in names:
        longer = f"{text}{separator}{name}"
        if count < _MAX_NAMES and pieces(longer) <= MAX_PIECES:
            text, separator, count = longer, ", ", count + 1
    return text if count else ""


def _place(screen: Screen) -> str:
    """The app and its page by the activity, and whether the keyboard is shown; "this screen" without an activity."""
    package, _, activity = screen.activity.partition("/")
    app = _app(package)
    words = _words(re.split(r"[.$]", activity)[-1])[:_MAX_PAGE_WORDS]
    page = [_PLAINER.get(word, word) for word in words if word not in ("activity", "main", app)]
    if "launcher" in package.lower():
        place = next((_LAUNCHER_PAGES[word] for word in page if word in _LAUNCHER_PAGES), "home screen")
    else:
        place = " ".join([app, *(page or ["screen"])]) if app else "this screen"
    return f"{place}, keyboard" if _shows_keyboard(screen) else place


def _app(package: str) -> str:
    """The last part of the package that is not a general word; empty without a package."""
    parts = [word for part in package.split(".") for word in _words(part)[:1]]
    return next((part for part in reversed(parts) if part not in _PACKAGE_ENDS), parts[-1] if parts else "")


def _words(identifier: str) -> list[str]:
    """The words of an identifier in CamelCase, lower case, letters and digits only."""
    clean = normalized("NFC", identifier)
    words = (word.lower()[:_MAX_WORD_CHARACTERS] for word in _CAMEL.split(clean))
    return [word for word in words if word.isalnum() and word.isprintable() and "goal" not in word]


def _names(screen: Screen) -> list[str]:
    """The usable names of text elements in the source's order, each once, without what the place already says."""
    place = _PIECE.findall(_place(screen))
    names = (_name(element) for element in screen.elements or ())
    return [name for name in dict.fromkeys(names) if name and name.lower() not in place]


def _name(element: UiElement) -> str:
    """The element's text as one printable line without its last punctuation mark; empty if it is not usable.

    Not usable are long and truncated texts, texts without a word (times, prices, single letters), and icons.
    """
    text = normalized("NFC", " ".join(element.text.split())).rstrip(".,:;!?")
    is_word = any(part.isalpha() and len(part) > 1 for part in _PIECE.findall(text))
    is_short = len(text) <= _MAX_NAME_CHARACTERS and text.isprintable()
    return text if is_word and is_short and "…" not in text and "goal" not in text.lower() else ""


def _shows_keyboard(screen: Screen) -> bool:
    """Whether the elements include the icons or the letters of an on-screen keyboard."""
    elements = screen.elements or ()
    letters = {element.text.lower() for element in elements if len(element.text) == 1 and element.text.isalpha()}
    return {element.type for element in elements} >= _KEYBOARD_ICONS or len(letters) >= _KEYBOARD_LETTERS


def _replaced(before: Screen, after: Screen) -> list[tuple[str, str]]:
    """(earlier, later) name of each text that was replaced where it stood, from top to bottom."""
    pairs, placed = [], _placed(before)
    for new, (y, x) in _placed(after):
        olds = [
            old
            for old, (y_before, x_before) in placed
            if abs(y - y_before) < _SAME_PLACE and abs(x - x_before) < _SAME_PLACE
        ]
        if olds and new not in olds:
            pairs.append((y, olds[0], new))
    return [(old, new) for _, old, new in sorted(pairs)]


def _scrolled(before: Screen, after: Screen) -> str | None:
    """The direction in which one sees further along a list, None if it was not scrolled.

    At least two names that appear once on each screen must have moved by the same distance, and none otherwise.
    """
    earlier, later = _unique(_placed(before)), _unique(_placed(after))
    shifts = [(earlier[name][0] - later[name][0], earlier[name][1] - later[name][1]) for name in earlier.keys() & later]
    moved = sorted(shift for shift in shifts if max(map(abs, shift)) >= _SCROLLED)
    if len(moved) < 2 or any(abs(last - first) > _SAME_PLACE for first, last in zip(moved[0], moved[-1], strict=True)):
        return None
    dy, dx = moved[0]
    if abs(dy) >= abs(dx):
        return "down" if dy > 0 else "up"
    return "right" if dx > 0 else "left"


def _placed(screen: Screen) -> list[tuple[str, tuple[float, float]]]:
    """(name, (vertical centre, left edge)) of each element with a usable name."""
    named = ((_name(element), element) for element in screen.elements or ())
    return [(name, (element.centre_yx[0], element.box[1])) for name, element in named if name]


def _unique(placed: list[tuple[str, tuple[float, float]]]) -> dict[str, tuple[float, float]]:
    counts = Counter(name for name, _ in placed)
    return {name: place for name, place in placed if counts[name] == 1}
