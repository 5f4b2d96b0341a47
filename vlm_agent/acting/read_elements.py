"""A device whose elements are read from its screenshots, for phones that report none or wrong ones.

device = ReadElements(phone, ScreenReader.of(Readers()))
ending = act(with_read_elements(agent, reader), device, goal, trace, guard)

The guard and the trace then have the elements that were read, so that purchases are detected by the words in the
picture, also by those that are read with a low confidence, which agents do not see. Around the phone itself, inside of
`long_screen`: every screen on which the device acts is read.

A picture does not always say that a field is one for passwords. After a touch, and after typing, the phone is asked for
its own elements, and its password fields replace what was read in them, so that what is typed is masked in the trace.
On a real phone that takes two to four seconds.
"""

import numpy as np

from vlm_agent.agents.read_screens.reader import ScreenReader
from vlm_agent.devices import Device
from vlm_agent.episodes import KINDS_WITH_TOUCH, Action, ActionKind, UiElement
from vlm_agent.geometry import contains
from vlm_agent.texts.secrets import names_secret


class ReadElements:
    """A `Device` around `device`."""

    def __init__(self, device: Device, reader: ScreenReader) -> None:
        self._device, self._reader = device, reader
        self._shown: np.ndarray | None = None
        self._passwords: tuple[UiElement, ...] | None = ()
        """The phone's password fields; None: to be asked for."""

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
        """Those read from the last screenshot since the last action, or else from a new one; never None."""
        understood = self._reader.read(self.screenshot() if self._shown is None else self._shown)
        if self._passwords is None:
            self._passwords = tuple(one for one in self._device.elements() or () if names_secret(one.text))
        read = (*understood.elements, *understood.unsure_elements)
        others = (one for one in read if not any(contains(field.box, one.centre_yx) for field in self._passwords))
        return (*others, *self._passwords)

    def perform(self, action: Action) -> None:
        self._shown = None
        is_in_field = action.kind is ActionKind.TYPE or (action.kind in KINDS_WITH_TOUCH and not action.is_swipe)
        self._passwords = None if is_in_field else ()
        self._device.perform(action)
