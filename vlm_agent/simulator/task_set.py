"""The task set `simulated`: goals of the simulated phone, with an expert."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar

from pydantic import AfterValidator, PositiveInt

from vlm_agent.devices.task_sets import TaskSet, check_split
from vlm_agent.simulator.demonstrations import simulated_tasks
from vlm_agent.simulator.opening import SimulatedTask
from vlm_agent.simulator.phone import SIZE, check_scale, check_size
from vlm_agent.simulator.tasks import check_templates


class SimulatedTasks(TaskSet):
    """`size`: (height, width) of the phones' screens in pixels. `scale`: screenshots are rendered at this multiple of
    the size, as by `simulate --scale`. `templates`: only goals of these, such as `reinforcement.held_out_templates` of
    a run; all if empty. `samples`: how often each task is played. Raises DeviceError for a size or scale that phones
    do not have, and for an unknown template."""

    has_expert: ClassVar[bool] = True

    task_set: str = "simulated"
    size: Annotated[tuple[int, int], AfterValidator(check_size)] = SIZE
    scale: Annotated[int, AfterValidator(check_scale)] = 1
    templates: Annotated[tuple[str, ...], AfterValidator(partial(check_templates, key="templates"))] = ()
    samples: PositiveInt = 1

    def tasks(self, count: int, seed: int, split: str) -> Sequence[SimulatedTask]:
        check_split(split)
        tasks = simulated_tasks(count, seed, split, self.size, self.scale, self.templates)
        numbers = range(1, self.samples + 1) if self.samples > 1 else (0,)
        return [replace(task, sample=number) for task in tasks for number in numbers]
