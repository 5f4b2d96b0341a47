"""Actions in words with binned coordinates (Smartphone Assistant, section 3.2 and table 2).

    tap at Y X                    swipe from Y X to Y X       Input text "…"
    press back|home|enter         complete                    impossible

Coordinates are y then x, in `bins` equal bins 0 … bins-1 (the paper's number is lost in its text; 100 is ours).
Parsing returns the centre of the bin, so a point comes back within half a bin on each axis. Typed text is a JSON
string: quotes, backslashes and control characters are escaped, everything else stands as it is.
"""

import json
import re
from dataclasses import dataclass

from vlm_agent.episodes import BUTTONS, Action, ActionKind, Step

_NUMBER = r"(0|[1-9][0-9]{0,8})"
_TAP = re.compile(rf"tap at {_NUMBER} {_NUMBER}", re.ASCII)
_SWIPE = re.compile(rf"swipe from {_NUMBER} {_NUMBER} to {_NUMBER} {_NUMBER}", re.ASCII)
_TYPE_PREFIX = "Input text "
_FIXED = {f"press {button}": Action.press(button) for button in BUTTONS} | {
    "complete": Action.complete(),
    "impossible": Action.impossible(),
}
PHRASES = ("tap at ", "swipe from ", " to ", _TYPE_PREFIX + '"', *_FIXED)
"""The fixed words of the language; a tokenizer from scratch gives each one token."""

_FIXED_TEXT = {action.kind: text for text, action in _FIXED.items()}


@dataclass(frozen=True)
class BinnedLanguage:
    """The codec; `bins` per axis, at least 2.

    A swipe so short that its bins' centres would read as a tap is written with its far end moved along its main axis
    to the next bin that keeps it a swipe: the kind of an action always survives, at the cost of a few hundredths of
    the screen on swipes shorter than about 0.05.
    """

    bins: int = 100

    def __post_init__(self):
        if self.bins < 2:
            raise ValueError(f"bins is {self.bins}; a swipe needs at least 2 bins")

    def render(self, action: Action, step: Step | None = None) -> str:
        if action.kind is ActionKind.TYPE:
            return _TYPE_PREFIX + json.dumps(action.text, ensure_ascii=False)
        if action.kind is not ActionKind.DUAL_POINT:
            return _FIXED_TEXT[action.kind]
        if action.is_tap:
            return "tap at {} {}".format(*self._bin(action.touch_yx))
        return "swipe from {} {} to {} {}".format(*self._swipe_bins(action))

    def parse(self, text: str, step: Step | None = None) -> Action | None:
        action = self._read(text)
        # Rendering again is what makes the language exact: leading zeros, needless escapes, swipes that are taps and
        # bins out of range are all refused by one comparison.
        if action is None or self.render(action) != text:
            return None
        return action

    def _read(self, text: str) -> Action | None:
        if text in _FIXED:
            return _FIXED[text]
        if text.startswith(_TYPE_PREFIX):
            return _read_typing(text[len(_TYPE_PREFIX) :])
        if match := _TAP.fullmatch(text) or _SWIPE.fullmatch(text):
            numbers = [int(number) for number in match.groups()]
            if max(numbers) < self.bins:
                centres = [(number + 0.5) / self.bins for number in numbers]
                return Action.swipe(tuple(centres[:2]), tuple(centres[-2:]))
        return None

    def _bin(self, point_yx: tuple[float, float]) -> tuple[int, int]:
        return tuple(min(int(value * self.bins), self.bins - 1) for value in point_yx)

    def _swipe_bins(self, swipe: Action) -> tuple[int, int, int, int]:
        touch, lift = list(self._bin(swipe.touch_yx)), list(self._bin(swipe.lift_yx))
        axis = 0 if swipe.direction in ("up", "down") else 1
        away = 1 if swipe.direction in ("down", "right") else -1
        while not self._centres(touch, lift).is_swipe:
            if 0 <= lift[axis] + away < self.bins:
                lift[axis] += away
            else:
                touch[axis] -= away
        return (*touch, *lift)

    def _centres(self, touch: list[int], lift: list[int]) -> Action:
        return Action.swipe(
            tuple((value + 0.5) / self.bins for value in touch), tuple((value + 0.5) / self.bins for value in lift)
        )


def _read_typing(literal: str) -> Action | None:
    try:
        text = json.loads(literal)
        return Action.type_text(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):  # not JSON, or a lone surrogate, which is no text
        return None
