"""Devices that a run puts around a phone: elements read from pixels, and long screens.

device = ReadElements(phone, ScreenReader.of(Readers()))
device = long_screen(device, goal, trace, guard)
ending = act(ReadingAgent(agent, reader), device, goal, trace, guard)

`ReadElements` is for phones that report no elements, or wrong ones. The guard and the trace then have the elements that
were read, so that purchases are detected by the words in the picture, also by those that agents do not see: labels at
their own place, and texts that are read with a low confidence. It is inside of `long_screen`, so that every screen on
which the device acts is read.

A picture does not always say that a field is one for passwords. After a touch, typing and enter, and as long as the
agent then waits, the phone is asked for its own elements. What was read in one of its password fields gets the field's
name, so that what is typed is masked in the trace. On a real phone that takes two to four seconds.

The loop asks the guard about the agent's action on a tall picture, as on any screen. `LongScreen` performs further
actions, which the loop does not see: swipes to look at the page, and for a touch beyond the screen swipes and the touch
on the screen. Each of them is a line of the trace. Each of them, and the agent's action where it is performed, is a
`Proposal` of its own, with the texts of that screen. A person is not asked about swipes to look: where the guard would
ask, the page is not scrolled.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from vlm_agent.agents.read_screens import ScreenReader
from vlm_agent.datasets.sources.trace_writer import Trace
from vlm_agent.devices import Device
from vlm_agent.devices.acting.guard import Guard, Proposal
from vlm_agent.devices.acting.purchases import KINDS_IN_PLACE
from vlm_agent.devices.device import DeviceAround
from vlm_agent.devices.long_screen import LongScreen, OwnAction
from vlm_agent.episodes import Action, ActionKind, UiElement, element_at
from vlm_agent.texts.secrets import names_secret

_LOG = logging.getLogger(__name__)


class ReadElements(DeviceAround):
    """A `Device` around `device`."""

    def __init__(self, device: Device, reader: ScreenReader) -> None:
        super().__init__(device)
        self._reader = reader
        self._shown: np.ndarray | None = None
        self._may_type = False
        self._reported: tuple[UiElement, ...] | None = ()
        """The phone's own elements; None: to be asked for."""

    def screenshot(self) -> np.ndarray:
        self._shown = self._device.screenshot()
        return self._shown

    def elements(self) -> tuple[UiElement, ...]:
        """The elements read from the last screenshot since the last action, or else from a new one; never None."""
        understood = self._reader.read(self.screenshot() if self._shown is None else self._shown)
        if self._reported is None:
            self._reported = tuple(self._device.elements() or ())
        read = (*understood.elements, *understood.label_elements, *understood.unsure_elements)
        return with_password_fields(read, self._reported)

    def perform(self, action: Action) -> None:
        self._shown = None
        if action.kind not in KINDS_IN_PLACE:
            self._may_type = action.is_touch or action.kind in (ActionKind.TYPE, ActionKind.PRESS_ENTER)
        self._reported = None if self._may_type else ()
        self._device.perform(action)


def with_password_fields(read: Sequence[UiElement], reported: Sequence[UiElement]) -> tuple[UiElement, ...]:
    """`read`, and those of the elements that the phone `reported` whose name says that they hold a secret.

    An element that was read in such a field, and in no smaller element of the phone, gets its name; what it showed
    comes after. It is not dropped, because a page may be reported as one element, whose title names a password, and
    hold a payment button.
    """
    named, shown = [], []
    for one in read:
        field = element_at(reported, one.centre_yx)
        if field is not None and names_secret(field.text):
            named.append(replace(one, text=field.text))
            shown.append(one)
        else:
            named.append(one)
    return (*named, *shown, *(one for one in reported if names_secret(one.text)))


def long_screen(
    device: Device, goal: str, trace: Trace, guard: Guard, warn: Callable[[str], None] = _LOG.warning
) -> LongScreen:
    """A `LongScreen` around `device` for one run. `warn` gets messages for the user; by default they are logged."""
    silent = replace(guard, ask=None)

    def permit(own: OwnAction) -> str | None:
        proposal = Proposal(0, goal, own.activity, own.elements, own.action)
        refusal = (silent if own.looks else guard).refusal(proposal)
        return None if refusal is None else refusal[1]

    return LongScreen(device, launcher=guard.launcher, permit=permit, record=trace.device_action, warn=warn)
