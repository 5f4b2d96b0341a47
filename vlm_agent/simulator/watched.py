"""A simulated phone that is served over ADB and watched: what its adb daemon receives is the demonstration."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from vlm_agent.devices.acting.demonstrating.lines import touched_name
from vlm_agent.devices.acting.demonstrating.observed import (
    Observed,
    ObservedAction,
    ObservedScreen,
    Recording,
    TypingField,
    Watching,
)
from vlm_agent.episodes import Action
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer


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


@contextmanager
def record(asked: Watching) -> Iterator[Recording]:
    """Serves a simulated phone, and says each action."""
    with asked.address.open() as opened:
        phone = cast(SimulatedPhone, opened.device)
        goal = opened.task.goal if asked.goal is None and opened.task is not None else asked.goal

        def notify(one: ObservedAction) -> None:
            asked.say(f"{len(handset.observed.actions):3d}  {_in_words(one)}")

        handset = WatchedHandset(phone, keeps_pixels=asked.keeps_pixels, notify=notify)
        with PhoneServer(handset, asked.port) as server:
            yield Recording(goal or "", handset.stop, f"adb connect {server.serial}")


def _in_words(one: ObservedAction) -> str:
    """For the terminal, without what is typed: it may be a secret."""
    if one.erases:
        return "erase"
    if one.action.is_swipe:
        return f"swipe {one.action.direction}"
    name = one.action.name.replace("_", " ")
    if one.action.is_tap and one.screen is not None:
        return f"{name} {touched_name(one.action, one.screen.elements or ())}"
    return name
