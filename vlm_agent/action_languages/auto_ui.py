"""The language of Auto-UI (section 3.3 and table 6): four quoted fields, with the spellings of its published code.

    "action_type": "DUAL_POINT", "touch_point": "[0.4984, 0.607]", "lift_point": "[0.4984, 0.607]", "typed_text": ""

Points are (y, x). With `normalised`, as in the paper, a tap has four decimals and lifts where it touches, and a swipe
is one of four fixed pairs of points, by its direction. Without it, every coordinate is the shortest text of its
float64. A field that the action does not use is `[-1.0, -1.0]` or empty.

Typed text loses backslashes and both kinds of quotation marks, and each run of white space becomes one space. AITW's
types have AITW's names; the types of later data sets have ours (`ActionKind`), in the same form: LONG_PRESS has a touch
point only, OPEN_APP and ANSWER have their text in `typed_text`.

So decoding an encoded action returns it with rounded points, the fixed points of its direction, and that text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from vlm_agent.action_languages.language import (
    DECISION,
    SWIPES,
    ActionLanguage,
    Coordinate,
    LanguageSettings,
    LanguageVocabulary,
)
from vlm_agent.episodes import KINDS_WITH_TEXT, KINDS_WITH_TOUCH, NO_POINT, Action, ActionKind, Screen
from vlm_agent.geometry import DIRECTIONS, float32_directions

_DECIMALS = 4
_FIELDS = ("action_type", "touch_point", "lift_point", "typed_text")
_KINDS = {kind.name: kind for kind in ActionKind}
_NONE = str(list(NO_POINT))
_LINK, _CLOSE = '", "lift_point": "', '", "typed_text": "'

_FIELD = re.compile(
    r"""\s*+(?:"(?P<name>\w{1,16})"|'(?P<name_>\w{1,16})')\s*+:\s*+(?:"(?P<value>[^"]*+)"|'(?P<value_>[^']*+)')\s*+""",
    re.ASCII,
)
_FIRST_FIELD = re.compile(rf"""["'](?:{"|".join(_FIELDS)})["']\s*+:""")
_NUMBER = r"-?[0-9]{1,3}(?:\.[0-9]{1,24})?(?:e-?[0-9]{1,3})?"
_A_NUMBER = re.compile(_NUMBER)
_POINT = re.compile(rf"\[ ?({_NUMBER}) ?, ?({_NUMBER}) ?\]")
_WHITE_SPACE = re.compile(r"\s+")
_NOT_WRITTEN = str.maketrans("", "", "\\\"'")
_NUMBER_ENDINGS = ("", "0", "1", ".0", "05", "0.0", "-05", "e-05", "0e-05")
"""One of these completes each prefix of a coordinate, the shortest first."""


@dataclass(frozen=True)
class AutoUiLanguage(ActionLanguage):
    """The codec. `decode` also reads a decision behind a plan (`Action Plan: […] ; Action Decision: …`), fields in any
    order, and single quotation marks; every field must be present once, and points must fit the action's type."""

    normalised: bool = True

    @property
    def max_tokens(self) -> int:
        return 192  # spelt in bytes, a tap has 113 and an unnormalised gesture up to 187

    @property
    def instructions(self) -> str:
        example = self.encode(Action.tap(0.25, 0.5))
        swipes = ", ".join(f"{name} from {list(touch)} to {list(lift)}" for name, (touch, lift) in SWIPES.items())
        kinds = ", ".join(kind.name for kind in ActionKind if kind.is_in_aitw)
        return (
            f"Answer with one action and nothing else, as four fields in this form:\n{example}\n"
            f"action_type is one of {kinds}. A point is [y, x] in fractions of the screen, from the top left. "
            f"DUAL_POINT is a tap if touch_point and lift_point are equal, else a swipe: {swipes}. TYPE types "
            "typed_text, written without quotation marks and backslashes, into the field in focus. Points that an "
            f"action does not use are {_NONE}, and typed_text is then empty. STATUS_TASK_COMPLETE: the goal is "
            "reached. STATUS_TASK_IMPOSSIBLE: it cannot be reached."
        )

    def encode(self, action: Action, screen: Screen | None = None, swipe_target: str | None = None) -> str:
        touch, lift = self._points(action)
        return _form(action.kind, str(list(touch)), str(list(lift)), _typed(action.text))

    def decode(self, text: str, screen: Screen | None = None) -> Action | None:
        for start in _starts(text):
            fields = _fields(text, start)
            if fields is not None:
                return _action(*fields)
        return None

    def vocabulary(self) -> LanguageVocabulary:
        """A word tokenizer writes an action without coordinates, or a fixed swipe, as one token and a tap as about 15.

        Coordinates are the first two decimals with the text before them, `[0.49` for y and `, 0.60` for x.
        """
        kinds = [kind for kind in ActionKind if kind not in (*KINDS_WITH_TOUCH, *KINDS_WITH_TEXT)]
        phrases = [_form(kind, _NONE, _NONE, "") for kind in kinds]
        phrases += [_form(ActionKind.DUAL_POINT, *swipe, "") for swipe in self._swipes]
        phrases += [_form(kind, _NONE, _NONE, "")[:-1] for kind in KINDS_WITH_TEXT]
        phrases += [f'"action_type": "{kind.name}", "touch_point": "' for kind in KINDS_WITH_TOUCH]
        phrases += [f"]{_LINK}{_NONE}{_CLOSE}" + '"', f"]{_LINK}", f"]{_CLOSE}" + '"']
        hundredths = [(f"0.{number:02}", (number + 0.5) / 100) for number in range(100)]
        rows = [Coordinate(f"[{text}", 0, place) for text, place in hundredths]
        columns = [Coordinate(f", {text}", 1, place) for text, place in hundredths]
        return LanguageVocabulary(tuple(phrases), (*rows, *columns))

    def ending(self, text: str) -> str | None:
        """A completion of `text` to an encoded action; the completion of a tap repeats its touch point."""
        return _ending(self, text)

    @property
    def _swipes(self) -> Iterator[tuple[str, str]]:
        """The texts of touch and lift point of the fixed swipes."""
        return ((str(list(touch)), str(list(lift))) for touch, lift in SWIPES.values() if self.normalised)

    def _points(self, action: Action) -> tuple[tuple[float, float], tuple[float, float]]:
        if not self.normalised or action.kind not in KINDS_WITH_TOUCH:
            return action.touch_yx, action.lift_yx
        if action.is_swipe:
            return SWIPES[DIRECTIONS[int(float32_directions(action.touch_yx, action.lift_yx))]]
        y, x = (round(value, _DECIMALS) for value in action.touch_yx)
        return (y, x), (y, x) if action.is_tap else NO_POINT

    def _endings(self, text: str) -> Iterator[str]:
        """Completions of `text`, one for each form that it can become."""
        yield from (whole[len(text) :] for whole in _wholes(self) if whole.startswith(text))
        for kind in KINDS_WITH_TEXT:
            opening = _form(kind, _NONE, _NONE, "")[:-1]
            typed, quote, rest = text[len(opening) :].partition('"')
            if text.startswith(opening) and _typed(typed) == typed and not rest:
                yield "" if quote else '"'
        for kind in KINDS_WITH_TOUCH:
            opening = f'"action_type": "{kind.name}", "touch_point": "['
            if opening.startswith(text[: len(opening)]):
                touch, _, after = text[len(opening) :].partition("]")
                gestures = self._gestures(kind, touch, after[len(_LINK) + 1 :].partition("]")[0])
                yield from (whole[len(text) :] for whole in gestures if whole.startswith(text))

    def _gestures(self, kind: ActionKind, touch: str, lift: str) -> Iterator[str]:
        """Encoded actions whose points may begin with the texts `touch` and `lift`, each from behind its bracket."""
        point = self._completed_point(touch)
        if point is None:
            return
        lifts: list[str | None] = [_NONE]
        if kind is ActionKind.DUAL_POINT:
            swipes = [end for start, end in self._swipes if start == point]
            lifts = [point, *swipes] if self.normalised else [self._completed_point(lift)]
        yield from (_form(kind, point, one, "") for one in lifts if one is not None)

    def _completed_point(self, text: str) -> str | None:
        """A point that may begin with `text` behind its bracket; None if no numbers of coordinates do."""
        y, _, x = text.partition(",")
        forms = [[digits + ending for ending in _NUMBER_ENDINGS] for digits in (y, x.removeprefix(" "))]
        numbers = [next(filter(self._is_number, form), None) for form in forms]
        return None if None in numbers else f"[{', '.join(map(str, numbers))}]"

    def _is_number(self, digits: str) -> bool:
        """Whether `digits` are a coordinate as `encode` writes it; any on the screen if not normalised."""
        if not _A_NUMBER.fullmatch(digits) or not 0 <= float(digits) <= 1:
            return False
        return not self.normalised or str(round(float(digits), _DECIMALS)) == digits


class AutoUiSettings(LanguageSettings):
    """`normalised`: whether taps are rounded to four decimals and swipes become one of four (Auto-UI, section 3.3).
    False keeps the coordinates of the data (table 3, without coordinate normalisation)."""

    name: Literal["auto_ui"] = "auto_ui"
    normalised: bool = True

    def build(self) -> AutoUiLanguage:
        return AutoUiLanguage(self.normalised)


@lru_cache
def _wholes(language: AutoUiLanguage) -> list[str]:
    wholes = [_form(kind, _NONE, _NONE, "") for kind in ActionKind if kind not in KINDS_WITH_TOUCH]
    return wholes + [_form(ActionKind.DUAL_POINT, *swipe, "") for swipe in language._swipes]


@lru_cache(maxsize=1 << 16)
def _ending(language: AutoUiLanguage, text: str) -> str | None:
    """`ending`, cached because decoding repeats the same prefixes. Only decoding rejects text that is not Unicode."""
    endings = [ending for ending in language._endings(text) if language.decode(text + ending) is not None]
    return min(endings, key=len, default=None)


def _form(kind: ActionKind, touch: str, lift: str, typed: str) -> str:
    return f'"action_type": "{kind.name}", "touch_point": "{touch}{_LINK}{lift}{_CLOSE}{typed}"'


def _typed(text: str) -> str:
    return _WHITE_SPACE.sub(" ", text.translate(_NOT_WRITTEN))


def _starts(text: str) -> Iterator[int]:
    """The places at which the fields of a decision may start: that of `text`, that behind the first `DECISION`, and the
    first field anywhere."""
    yield 0
    if (marker := text.find(DECISION)) >= 0:
        yield marker + len(DECISION)
    elif field := _FIRST_FIELD.search(text):
        yield field.start()


def _fields(text: str, at: int) -> tuple[str, str, str, str] | None:
    """The values of `_FIELDS` in `text` from `at` to its end, braces around them allowed. Linear in the length."""
    values: dict[str, str] = {}
    while at < len(text) and (text[at] == "{" or text[at].isspace()):
        at += 1
    while (match := _FIELD.match(text, at)) is not None:
        name, value = match["name"] or match["name_"], match["value"]
        if name not in _FIELDS or name in values:
            return None
        values[name] = match["value_"] if value is None else value
        at = match.end()
        if not text.startswith(",", at):
            break
        at += 1
    if len(values) < len(_FIELDS) or text[at : at + 64].strip() not in ("", "}") or text[at + 64 :].strip():
        return None
    kind, touch, lift, typed = (values[name] for name in _FIELDS)
    return kind, touch, lift, typed


def _action(kind: str, touch: str, lift: str, typed: str) -> Action | None:
    touch_yx, lift_yx = _point(touch), _point(lift)
    if kind not in _KINDS or touch_yx is None or lift_yx is None:
        return None
    try:
        return Action(_KINDS[kind], touch_yx, lift_yx, _typed(typed))
    except ValueError:  # points off the screen, fields that the type does not have, a lone surrogate
        return None


def _point(text: str) -> tuple[float, float] | None:
    match = _POINT.fullmatch(text)
    return None if match is None else (float(match[1]), float(match[2]))
