"""The phone of `vlm-agent act`: over ADB, simulated, or in a browser."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class OpenedPhone:
    """`task` is the one it stands at the start of, None where there is none; `address` is a simulated one's."""

    device: object
    name: str
    goal: str
    task: object = None
    address: str | None = None

    def heading(self, agent: str):
        from vlm_agent.datasets.traces import Heading

        given = (uuid.uuid4().hex, self.goal, agent, self.name)
        if self.task is None:
            return Heading(*given)
        if self.address is None:
            return Heading(*given, self.task.subset)
        # Another goal than the task's own is another episode, but the same phone to replay it on.
        return Heading(*given, self.task.subset, self.address, self.device.size)


@contextmanager
def opened_phone(options) -> Iterator[OpenedPhone]:
    """What --device names, for as long as it is used; DeviceError where it is not to be had."""
    if options.device["kind"] == "simulated":
        yield _simulated(options)
        return
    if options.device["kind"] == "browser":
        with _browser(options) as opened:
            yield opened
        return

    from vlm_agent.devices.adb import AdbPhone

    with AdbPhone(options.device["serial"]) as phone:
        yield OpenedPhone(phone, phone.serial, options.goal)


def _simulated(options) -> OpenedPhone:
    from vlm_agent.devices.simulated_phone import SimulatedPhone, sample_task

    given = options.device
    if given["subset"] is None:
        phone, task, address = SimulatedPhone(0), None, None
    else:
        address = f"{given['subset']}/{given['split']}/{int(given['seed'])}"
        task = sample_task(given["subset"], given["split"], int(given["seed"]))
        phone = SimulatedPhone(task.seed)
        task.set_up(phone)
    goal = task.goal if options.goal is None else options.goal
    return OpenedPhone(phone, f"simulated_{phone.size[1]}x{phone.size[0]}", goal, task, address)


@contextmanager
def _browser(options) -> Iterator[OpenedPhone]:
    from vlm_agent.devices.browser import BrowserPhone
    from vlm_agent.devices.browser_tasks import browser_task

    site, number = options.device["site"], options.device["number"]
    task = None if number is None else browser_task(site, int(number))
    goal = task.goal if options.goal is None else options.goal
    with BrowserPhone(site, 0 if task is None else task.seed) as phone:
        yield OpenedPhone(phone, f"browser_{phone.size[1]}x{phone.size[0]}", goal, task)
