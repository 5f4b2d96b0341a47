"""A device whose elements are read from its screenshots, for phones that report none or wrong ones.

device = ReadElements(phone, ScreenReader.of(Readers()))
ending = act(ReadingAgent(agent, reader), device, goal, trace, guard)

The guard and the trace then have the elements that were read, so that purchases are detected by the words in the
picture, also by those that agents do not see: labels at their own place, and texts that are read with a low confidence.
Around the phone itself, inside of `long_screen`: every screen on which the device acts is read.

A picture does not always say that a field is one for passwords. After a touch, and after typing, the phone is asked for
its own elements, and what was read in one of its password fields gets the field's name, so that what is typed is masked
in the trace. On a real phone that takes two to four seconds.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vlm_agent.agents.read_screens import ScreenReader
from vlm_agent.devices import Device
from vlm_agent.episodes import Action, ActionKind, UiElement, element_at
from vlm_agent.texts.secrets import names_secret


class ReadElements:
    """A `Device` around `device`."""

    def __init__(self, device: Device, reader: ScreenReader) -> None:
        self._device, self._reader = device, reader
        self._shown: np.ndarray | None = None
        self._reported: tuple[UiElement, ...] | None = ()
        """The phone's own elements; None: to be asked for."""

    @property
    def activity(self) -> str:
        return self._device.activity

    @property
    def status(self) -> ActionKind | None:
        return self._device.status

    @property
    def answer(self) -> str | None:
        return self._device.answer

    @property
    def size(self) -> tuple[int, int]:
        return self._device.size

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
        is_in_field = action.kind is ActionKind.TYPE or action.is_touch
        self._reported = None if is_in_field else ()
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
