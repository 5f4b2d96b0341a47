"""A deterministic little Android drawn with Pillow, with goals to reach on it and an expert that reaches them.

task = sample_task("google_apps", "train", seed=7)
phone = SimulatedPhone(seed=7)
task.set_up(phone)
steps = task.solve(phone)       # or operate it yourself: phone.screenshot(), phone.perform(action)
task.reached(phone)
"""

from vlm_agent.devices.simulated_phone import goals
from vlm_agent.devices.simulated_phone.phone import SimulatedPhone
from vlm_agent.devices.simulated_phone.tasks import SPLITS, TEMPLATES, Task, sample_task, split_of

__all__ = ["SPLITS", "TEMPLATES", "SimulatedPhone", "Task", "goals", "sample_task", "split_of"]
