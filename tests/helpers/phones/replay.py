"""A trace done again: the same actions on a freshly reset phone must show the same screens."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vlm_agent.datasets.sources.traces import DONE, IN_DOUBT, read_trace
from vlm_agent.errors import DatasetError
from vlm_agent.simulator import SimulatedPhone, sample_task


@dataclass(frozen=True)
class Replay:
    """`differing`: the numbers of the steps that saw another screen. `reached`: whether the task is, afterwards."""

    steps: int
    differing: tuple[int, ...]
    reached: bool


def replay(folder: Path) -> Replay:
    """Does what the trace's agent did. Raises DatasetError where it was not on a simulated phone with a task, or where
    something of it is missing."""
    trace = read_trace(folder)
    if trace.heading.task is None or trace.heading.size is None:
        raise DatasetError(f"{folder} is no trace of a simulated task, so there is no phone to do it on again")
    subset, split, seed = trace.heading.task.split("/")
    task = sample_task(subset, split, int(seed))
    scale = trace.screen(trace.steps[0]).shape[0] // trace.heading.size[0]
    phone = SimulatedPhone(task.seed, trace.heading.size, scale=scale)
    task.set_up(phone)
    differing = []
    for step in trace.steps:
        if not np.array_equal(phone.screenshot(), trace.screen(step)):
            differing.append(step.number)
        if step.action is not None and step.outcome in (DONE, IN_DOUBT):
            phone.perform(step.action)
    return Replay(len(trace.steps), tuple(differing), task.reached(phone))
