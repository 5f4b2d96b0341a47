"""The actions that a call takes on a phone, one after the other.

    enter_text   tap the field, type, press enter
    swipe        swipe, then tap what it brought into view
    all others   one action

Only the first one needs an element of the screen that the call was written for. So the others follow from the call
alone, and the last from the screen that it is performed on.
"""

from typing import Literal

from vlm_agent.action_languages.language import SWIPES
from vlm_agent.agents.vision_tasker.reading import Call
from vlm_agent.agents.vision_tasker.shown import ShownScreen
from vlm_agent.episodes import Action
from vlm_agent.screens.layout import Box

Stage = Literal["touch", "hold", "type", "enter", "swipe", "find", "key", "stop"]

_OF_ACTION: dict[str, tuple[Stage, ...]] = {
    "tap": ("touch",),
    "long_press": ("hold",),
    "press": ("key",),
    "stop": ("stop",),
}


class NoElementError(Exception):
    """The call names an element that the screen does not have, or a name of several. `candidates`: those that it could
    mean, all if it means none."""

    def __init__(self, name: str, candidates: list[int], is_ambiguous: bool) -> None:
        super().__init__(name)
        self.name, self.candidates, self.is_ambiguous = name, candidates, is_ambiguous


def stages_of(call: Call) -> tuple[Stage, ...]:
    if call.action == "enter_text":
        before: tuple[Stage, ...] = () if call.element is None else ("touch",)
        after: tuple[Stage, ...] = ("enter",) if call.enter else ()
        return (*before, "type", *after)
    if call.action == "swipe":
        return ("swipe", "find") if call.then_tap else ("swipe",)
    return _OF_ACTION[call.action]


def element_of(call: Call, shown: ShownScreen) -> int | None:
    """The number of the element that a call names; None if it names none. Raises NoElementError."""
    if call.element is None:
        return None
    if isinstance(call.element, int):
        named = [call.element] if call.element in shown.numbers else []
    else:
        named = shown.called(call.element)
    if len(named) == 1:
        return named[0]
    raise NoElementError(str(call.element), named or shown.numbers, is_ambiguous=bool(named))


def perform(call: Call, stage: Stage, shown: ShownScreen) -> tuple[Action, Box | None] | None:
    """The action of one stage, and the box of the element that it taps.

    None if the element that a swipe was to bring into view is not there, or is there several times. Raises
    NoElementError for the element of a first stage.
    """
    if stage == "type":
        return Action.type_text(call.text), None
    if stage == "enter":
        return Action.press("enter"), None
    if stage == "key":
        return Action.press(call.key), None
    if stage == "stop":
        return (Action.complete() if call.is_done else Action.impossible()), None
    if stage == "find":
        found = shown.called(call.then_tap)
        return _touch(found[0], shown, is_long=False) if len(found) == 1 else None
    number = element_of(call, shown)
    if stage == "swipe":
        return _swipe(call.direction, None if number is None else shown.place(number)), None
    return None if number is None else _touch(number, shown, is_long=stage == "hold")


def _touch(number: int, shown: ShownScreen, is_long: bool) -> tuple[Action, Box] | None:
    place = shown.place(number)
    if place is None:
        return None
    return (Action.long_press if is_long else Action.tap)(*place), shown.boxes[number]


def _swipe(direction: str, place: tuple[float, float] | None) -> Action:
    """Across the middle of the screen, or across the row or column of a place."""
    touch, lift = SWIPES[direction]
    if place is None:
        return Action.swipe(touch, lift)
    if direction in ("up", "down"):
        return Action.swipe((touch[0], place[1]), (lift[0], place[1]))
    return Action.swipe((place[0], touch[1]), (place[0], lift[1]))
