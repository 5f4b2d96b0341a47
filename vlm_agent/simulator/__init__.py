"""A small deterministic Android phone drawn with Pillow, with tasks and an expert that solves them.

task = sample_task("google_apps", "train", seed=7)
phone = SimulatedPhone(seed=7)
task.set_up(phone)
steps = task.solve(phone)       # or operate the phone yourself: phone.screenshot(), phone.perform(action)
task.reached(phone)
"""

from vlm_agent.devices.task_sets import SPLITS, split_of
from vlm_agent.simulator import goals
from vlm_agent.simulator.phone import SimulatedPhone
from vlm_agent.simulator.tasks import TEMPLATES, Task, sample_task

SUBSETS = tuple(sorted({template.subset for template in TEMPLATES}))
"""The names of the goals' subsets."""

__all__ = ["SPLITS", "SUBSETS", "TEMPLATES", "SimulatedPhone", "Task", "goals", "sample_task", "split_of"]
