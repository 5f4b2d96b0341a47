"""What a recorder observes, or a trace holds: actions with the screens on which they were done."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from pkgutil import resolve_name

import numpy as np

from vlm_agent.datasets.sources.traces import Trace, read_trace, reasons_to_exclude
from vlm_agent.devices import DEVICES, DeviceAddress
from vlm_agent.devices.errors import DeviceError
from vlm_agent.episodes import Action, UiElement
from vlm_agent.errors import DatasetError
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


def of_trace(folder: Path, keeps_pixels: bool = False) -> tuple[Trace, Observed]:
    """The performed steps of a trace, up to the first one in doubt. `keeps_pixels`: with the pixels of their screens.

    Raises DatasetError if it is damaged, or no action of it was performed.
    """
    trace = read_trace(folder)
    observed = Observed()
    for step, action in trace.performed():
        screen = ObservedScreen(step.activity, step.elements, pixels=trace.screen(step) if keeps_pixels else None)
        observed.actions.append(ObservedAction(action, screen))
    for reason in reasons_to_exclude(trace.steps):
        if reason is not None:
            observed.leave_out(reason)
    if not observed.actions:
        raise DatasetError(
            f"no action of the trace {folder} was performed on a screen that is not black; name another trace"
        )
    return trace, observed


@dataclass(frozen=True)
class Watching:
    """What a recorder is asked for.

    `address`, and `which` as the part of it after `KIND:`, None without a colon. `goal`: None for that of the device's
    task. `keeps_pixels`: with the pixels of the screens. `port`: TCP port of a phone that is served, 0 for any free
    one. `say`: shows the person a line.
    """

    address: DeviceAddress
    which: str | None
    goal: str | None
    keeps_pixels: bool
    port: int
    say: Callable[[str], None]


@dataclass(frozen=True)
class Recording:
    """A phone that is being watched.

    `goal`: what is shown. `stop`: returns the session; to be called once. `opening`: how the person reaches the phone,
    one line, or empty. `tick`: to be called several times a second until the person ends it.
    """

    goal: str
    stop: Callable[[], Observed]
    opening: str = ""
    tick: Callable[[], None] = lambda: None


def recorder_of(device: str) -> Callable[[Watching], AbstractContextManager[Recording]]:
    """The recorder of a device on the command line, which raises DeviceError if the phone cannot be watched.

    Raises DeviceError for a kind without one.
    """
    place = DEVICES[device.partition(":")[0]].recorder
    if place is None:
        raise DeviceError(f"{device} cannot be watched; run an agent on it and use its trace: --trace DIR")
    return resolve_name(place)
