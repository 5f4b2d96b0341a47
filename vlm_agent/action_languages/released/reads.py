"""What a call means: functions from its arguments to an action, from which the tables of languages are built."""

from collections.abc import Mapping
from typing import Any

from vlm_agent.action_languages.released.language import Read, Scale
from vlm_agent.episodes import Action, ActionKind

_KINDS = {kind.short_name: kind for kind in ActionKind}


def plain(name: str) -> Read:
    """An action without arguments that matter, such as `wait`."""
    action = Action(_KINDS[name])
    return lambda arguments, scale: action


def touch(name: str, *keys: str) -> Read:
    """`tap` or `long_press` at the point of the first of `keys` that is present."""

    def read(arguments: Mapping[str, Any], scale: Scale) -> Action | None:
        return _touched(name, scale.point(_first(arguments, keys)))

    return read


def touch_xy(name: str) -> Read:
    """`tap` or `long_press` at a point in the arguments x and y."""
    return lambda arguments, scale: _touched(name, scale.point([arguments.get("x"), arguments.get("y")]))


def stroke(starts: tuple[str, ...], ends: tuple[str, ...]) -> Read:
    """A swipe between two points; None for a gesture so short that it is a tap (`geometry.TAP_DISTANCE`)."""

    def read(arguments: Mapping[str, Any], scale: Scale) -> Action | None:
        start, end = scale.point(_first(arguments, starts)), scale.point(_first(arguments, ends))
        action = None if start is None or end is None else Action.swipe(start, end)
        return action if action is not None and action.is_swipe else None

    return read


def worded(key: str, *starts: str) -> Read:
    """A swipe whose direction is a word, from one of the points `starts` if present; None if that cannot be read."""
    return lambda arguments, scale: _swiped(arguments.get(key), _first(arguments, starts), scale)


def going(word: str, *starts: str) -> Read:
    """`worded` for a word that is the name of the call."""
    return lambda arguments, scale: _swiped(word, _first(arguments, starts), scale)


def paged(arguments: Mapping[str, Any], scale: Scale) -> Action | None:
    """A scroll by a number of pages, as pyautogui's: positive is up, and the finger goes down."""
    pages = arguments.get("page")
    if type(pages) not in (int, float) or not pages:
        return None
    return scale.swiped("down" if pages > 0 else "up")


def either(key: str, present: Read, absent: Read) -> Read:
    """`present` if the arguments have `key`, else `absent`."""
    return lambda arguments, scale: (present if key in arguments else absent)(arguments, scale)


def text(name: str, *keys: str) -> Read:
    """An action with the text of the first of `keys` that is present."""

    def read(arguments: Mapping[str, Any], scale: Scale) -> Action | None:
        value = _first(arguments, keys)
        return Action(_KINDS[name], text=value) if isinstance(value, str) else None

    return read


def choice(key: str, names: Mapping[str, str]) -> Read:
    """An action without arguments, by the word in `key`, in any case."""
    actions = {word: Action(_KINDS[name]) for word, name in names.items()}

    def read(arguments: Mapping[str, Any], scale: Scale) -> Action | None:
        word = arguments.get(key)
        return actions.get(word.casefold()) if isinstance(word, str) else None

    return read


def _touched(name: str, point: tuple[float, float] | None) -> Action | None:
    if point is None:
        return None
    return Action.tap(*point) if name == "tap" else Action(_KINDS[name], point)


def _swiped(word: Any, start: Any, scale: Scale) -> Action | None:
    if start is None or start == "":  # UI-TARS's own reader passes over an empty one
        return scale.swiped(word)
    start_yx = scale.point(start)
    return None if start_yx is None else scale.swiped(word, start_yx)


def _first(arguments: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((arguments[key] for key in keys if key in arguments), None)
