"""A simulated phone that is served over ADB and watched: what its adb daemon receives is the demonstration."""

from collections.abc import Callable
from dataclasses import dataclass, field

from vlm_agent.acting.demonstrating.observed import Observed, ObservedAction, ObservedScreen, TypingField
from vlm_agent.devices.adb_daemon import Handset
from vlm_agent.episodes import Action


@dataclass
class WatchedHandset(Handset):
    """Notes each action together with the screen before it. Actions while the phone is off or locked are not noted.

    `keeps_pixels`: with the pixels of the screens. `notify` is called after each action, on the thread of the
    connection.
    """

    observed: Observed = field(default_factory=Observed)
    keeps_pixels: bool = False
    notify: Callable[[ObservedAction], None] = lambda _: None

    def perform(self, action: Action) -> None:
        self._note(ObservedAction(action, self._screen()))
        super().perform(action)

    def press_key(self, press: Callable[[], object]) -> None:
        if press == self.phone.erase:
            self._note(ObservedAction(Action.wait(), self._screen(), erases=True))
        super().press_key(press)

    def stop(self) -> Observed:
        """The session so far, with the screen as it is now."""
        with self.lock:
            return Observed(list(self.observed.actions), self._screen(), dict(self.observed.left_out))

    def _note(self, one: ObservedAction) -> None:
        if self.is_awake and not self.is_locked:
            self.observed.actions.append(one)
            self.notify(one)

    def _screen(self) -> ObservedScreen:
        phone = self.phone
        typing = None
        if phone.focus is not None:
            typing = TypingField("", phone.app(phone.front).fields.get(phone.focus, ""))
        pixels = phone.screenshot() if self.keeps_pixels else None
        return ObservedScreen(phone.activity, phone.elements(), phone.focus is not None, typing, pixels)
