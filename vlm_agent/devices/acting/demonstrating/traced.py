"""A demonstration from a trace of `act` or `evaluate --online`, or from the episodes of `simulate`."""

from pathlib import Path

from vlm_agent.datasets.sources.traces import Trace, read_trace, reasons_to_exclude
from vlm_agent.devices.acting.demonstrating.observed import Observed, ObservedAction, ObservedScreen
from vlm_agent.episodes import Episode
from vlm_agent.errors import DatasetError


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


def of_episode(episode: Episode) -> Observed:
    """The steps of a demonstration in a data set."""
    steps = [ObservedAction(step.action, ObservedScreen(step.activity, step.elements)) for step in episode.steps]
    return Observed(steps)
