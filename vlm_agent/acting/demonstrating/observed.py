"""What a recorder observes: actions with the screens on which they were done."""

from dataclasses import dataclass, field

from vlm_agent.episodes import Action, UiElement


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
    the field with the focus, None if there is none or the phone does not report it."""

    activity: str
    elements: tuple[UiElement, ...] | None
    keyboard: bool = False
    typing: TypingField | None = None


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
