"""The tasks of an online evaluation: the test split that `simulate` records with the same seed, in the same order.

Thus offline and online evaluation score an agent on the same goals and phones.
"""

from dataclasses import dataclass

from vlm_agent.simulator import SimulatedPhone, Task, sample_task
from vlm_agent.simulator.demonstrations import SIZE, phone_seed, subset_of

SPLIT = "test"


@dataclass(frozen=True)
class OnlineTask:
    """Task number `index`, from 0, of a seed. `phone_seed` is the seed of its phone and goal, `size` (height,
    width) that of the screen in pixels. Screenshots are rendered at `scale` times the size, with the same layout."""

    index: int
    phone_seed: int
    size: tuple[int, int] = SIZE
    scale: int = 1

    @property
    def task(self) -> Task:
        return sample_task(subset_of(self.phone_seed), SPLIT, self.phone_seed)

    def fresh_phone(self) -> tuple[SimulatedPhone, Task]:
        """A new phone at the start of the task; every call returns the same phone, pixel by pixel."""
        phone, task = SimulatedPhone(self.phone_seed, self.size, scale=self.scale), self.task
        task.set_up(phone)
        return phone, task


def online_tasks(count: int, seed: int, size: tuple[int, int] = SIZE, scale: int = 1) -> list[OnlineTask]:
    """The first `count` tasks of a seed; a larger count only adds tasks."""
    return [OnlineTask(index, phone_seed((seed << 32) + index, SPLIT), size, scale) for index in range(count)]


def address_of(task: Task) -> str:
    """The task's name for `vlm-agent phone --task` and `vlm-agent act --device simulated:`."""
    return f"{task.subset}/{task.split}/{task.seed}"
