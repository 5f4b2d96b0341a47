"""What a recorder observes: actions with the screens on which they were done."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from vlm_agent.episodes import Action, UiElement
from vlm_agent.screens.seen import Understood


@dataclass(frozen=True)
class TypingField:
    """The text field with the focus, as far as the phone reports one.

    `text` is None for a password field, whose content is not read.
    """

    name: str
    text: str | None


@dataclass(frozen=True)
class ObservedScreen:
    """`elements`: None if the phone does not report them. `keyboard`: whether the phone's keyboard is shown. `typing`:
    the field with the focus, None if there is none or the phone does not report it.

    `pixels`: uint8 (height, width, 3), RGB, of a session whose elements will be read from them; otherwise None.
    `reported`: the phone's own elements where `elements` were read from the pixels. `labels`: texts that were read
    beside the element that they name, such as the label of a switch.
    """

    activity: str
    elements: tuple[UiElement, ...] | None
    keyboard: bool = False
    typing: TypingField | None = None
    pixels: np.ndarray | None = field(default=None, compare=False, repr=False)
    reported: tuple[UiElement, ...] = ()
    labels: tuple[UiElement, ...] = ()


@dataclass(frozen=True)
class ObservedAction:
    """`screen`: as it was when the finger came down; None if it was not read in time. `erases`: the action is the key
    that deletes a character, and `action` is ignored."""

    action: Action
    screen: ObservedScreen | None
    erases: bool = False


@dataclass
class Observed:
    """A session. `last`: the screen at its end. `left_out`: reason → number of gestures that have no words."""

    actions: list[ObservedAction] = field(default_factory=list)
    last: ObservedScreen | None = None
    left_out: dict[str, int] = field(default_factory=dict)

    def leave_out(self, reason: str) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + 1


def with_read_elements(observed: Observed, read: Callable[[np.ndarray], Understood]) -> Observed:
    """The session with elements and labels of each screen read from its pixels. The phone's own elements still count
    for secrets."""

    def screen(one: ObservedScreen | None) -> ObservedScreen | None:
        if one is None or one.pixels is None:
            return one
        seen, reported = read(one.pixels), one.elements or ()
        return replace(one, elements=seen.elements, labels=seen.label_elements, reported=reported, pixels=None)

    actions = [replace(one, screen=screen(one.screen)) for one in observed.actions]
    return Observed(actions, screen(observed.last), dict(observed.left_out))
