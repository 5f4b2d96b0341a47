"""Long screens in a run: every action that the device performs by itself is guarded, and is in the trace.

device = long_screen(phone, goal, trace, guard)
ending = act(agent, device, goal, trace, guard)

The loop asks the guard about the agent's action on the tall picture, as on any screen. `LongScreen` performs further
actions, which the loop does not see: swipes to look at the page, and for a touch beyond the screen swipes and the touch
on the screen. Each of them is a line of the trace. Each of them, and the agent's action where it is performed, is a
`Proposal` of its own, with the texts of that screen. A person is not asked about swipes to look: where the guard would
ask, the page is not scrolled.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.devices import Device
from vlm_agent.devices.acting.guard import Guard, Proposal
from vlm_agent.devices.long_screen import LongScreen, OwnAction

_LOG = logging.getLogger(__name__)


def long_screen(
    device: Device, goal: str, trace: TraceWriter, guard: Guard, warn: Callable[[str], None] = _LOG.warning
) -> LongScreen:
    """A `LongScreen` around `device` for one run. `warn` gets messages for the user; by default they are logged."""
    silent = replace(guard, ask=None)

    def permit(own: OwnAction) -> str | None:
        proposal = Proposal(0, goal, own.activity, own.elements, own.action)
        refusal = (silent if own.looks else guard).refusal(proposal)
        return None if refusal is None else refusal[1]

    return LongScreen(device, launcher=guard.launcher, permit=permit, record=trace.device_action, warn=warn)
