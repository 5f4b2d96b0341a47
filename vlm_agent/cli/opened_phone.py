"""The phone of `vlm-agent act`: over ADB, or simulated."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class OpenedPhone:
    """`task` is the simulated one it stands at the start of, None elsewhere."""

    device: object
    name: str
    goal: str
    task: object = None

    def heading(self, agent: str):
        from vlm_agent.datasets.traces import Heading

        if self.task is None:
            return Heading(uuid.uuid4().hex, self.goal, agent, self.name)
        subset, address = self.task.subset, f"{self.task.subset}/{self.task.split}/{self.task.seed}"
        # Another goal than the task's own is another episode, but the same phone to replay it on.
        return Heading(uuid.uuid4().hex, self.goal, agent, self.name, subset, address, self.device.size)


@contextmanager
def opened_phone(options) -> Iterator[OpenedPhone]:
    """What --device names, for as long as it is used; DeviceError where it is not to be had."""
    if options.device["kind"] == "simulated":
        yield _simulated(options)
        return

    from vlm_agent.devices.adb import AdbPhone

    with AdbPhone(options.device["serial"]) as phone:
        yield OpenedPhone(phone, phone.serial, options.goal)


def _simulated(options) -> OpenedPhone:
    from vlm_agent.devices.simulated_phone import SimulatedPhone, sample_task

    given = options.device
    if given["subset"] is None:
        phone, task = SimulatedPhone(0), None
    else:
        task = sample_task(given["subset"], given["split"], int(given["seed"]))
        phone = SimulatedPhone(task.seed)
        task.set_up(phone)
    goal = task.goal if options.goal is None else options.goal
    return OpenedPhone(phone, f"simulated_{phone.size[1]}x{phone.size[0]}", goal, task)
