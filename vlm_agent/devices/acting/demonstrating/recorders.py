"""The registry of recorders: how a person is watched on each kind of phone.

A recorder is a module with a function like `simulator.watched.record`, and a line in `RECORDERS`. A phone without
one is demonstrated by the trace of an agent.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pkgutil import resolve_name

from vlm_agent.devices import DeviceAddress
from vlm_agent.devices.acting.demonstrating.observed import Observed
from vlm_agent.devices.errors import DeviceError


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


@dataclass(frozen=True)
class Recorder:
    """`place`: module and function, imported at its first use. `is_served`: the person operates the phone over a TCP
    port of this machine."""

    place: str
    is_served: bool = False

    def start(self, asked: Watching) -> AbstractContextManager[Recording]:
        """Raises DeviceError if the phone is not available or cannot be watched."""
        recording: AbstractContextManager[Recording] = resolve_name(self.place)(asked)
        return recording


RECORDERS: Mapping[str, Recorder] = {
    "adb": Recorder("vlm_agent.devices.acting.demonstrating.touched:record"),
    "simulated": Recorder("vlm_agent.simulator.watched:record", is_served=True),
}
"""Kind of device (`vlm_agent.devices.DEVICES`) → its recorder."""


def recorder_of(device: str) -> Recorder:
    """The recorder of a device on the command line. Raises DeviceError for a kind without one."""
    found = RECORDERS.get(device.partition(":")[0])
    if found is None:
        raise DeviceError(f"{device} cannot be watched; run an agent on it and use its trace: --trace DIR")
    return found
