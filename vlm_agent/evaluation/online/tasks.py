"""The tasks of an online evaluation: those that `simulate` records with the same seed as its test split, in the same
order, so that an agent is scored offline and online on the same goals and phones."""

from dataclasses import dataclass

from vlm_agent.datasets.simulated_phone import SIZE, phone_seed, subset_of
from vlm_agent.devices.simulated_phone import SimulatedPhone, Task, sample_task

SPLIT = "test"


@dataclass(frozen=True)
class OnlineTask:
    """Number `index` (from 0) of those of a seed. `phone_seed` is the phone's and the task's own."""

    index: int
    phone_seed: int

    @property
    def task(self) -> Task:
        return sample_task(subset_of(self.phone_seed), SPLIT, self.phone_seed)

    def fresh_phone(self) -> tuple[SimulatedPhone, Task]:
        """A phone of its own at the start of the task: the same one, to the pixel, every time."""
        phone, task = SimulatedPhone(self.phone_seed, SIZE), self.task
        task.set_up(phone)
        return phone, task


def online_tasks(count: int, seed: int) -> list[OnlineTask]:
    """The first `count` of a seed; more of them begin with the same ones."""
    return [OnlineTask(index, phone_seed((seed << 32) + index, SPLIT)) for index in range(count)]


def address_of(task: Task) -> str:
    """As `vlm-agent phone --task` and `vlm-agent act --device simulated:` take it."""
    return f"{task.subset}/{task.split}/{task.seed}"
